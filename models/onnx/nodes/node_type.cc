#include "models/onnx/nodes/node_type.h"

#include <string_view>
#include <unordered_map>

#include "models/onnx/nodes/lowering/pointwise.h"
#include "runtime/base/error.h"

namespace lockstep::onnx {

std::span<const NodeType> activation_nodes();
std::span<const NodeType> attention_nodes();
std::span<const NodeType> convolution_nodes();
std::span<const NodeType> creation_nodes();
std::span<const NodeType> cumulative_sum_nodes();
std::span<const NodeType> einsum_nodes();
std::span<const NodeType> element_index_nodes();
std::span<const NodeType> elementwise_nodes();
std::span<const NodeType> gather_nodes();
std::span<const NodeType> gather_nd_nodes();
std::span<const NodeType> layer_norm_nodes();
std::span<const NodeType> loss_nodes();
std::span<const NodeType> movement_nodes();
std::span<const NodeType> norm_nodes();
std::span<const NodeType> pixel_block_nodes();
std::span<const NodeType> pooling_nodes();
std::span<const NodeType> product_nodes();
std::span<const NodeType> random_nodes();
std::span<const NodeType> recurrence_nodes();
std::span<const NodeType> reduction_nodes();
std::span<const NodeType> resizing_nodes();
std::span<const NodeType> slicing_nodes();
std::span<const NodeType> softmax_nodes();
std::span<const NodeType> trilu_nodes();

namespace {

const NodeType* find(std::string_view op) {
  static const auto kTable = [] {
    std::unordered_map<std::string_view, const NodeType*> table;
    for (const std::span<const NodeType> family : all_families())
      for (const NodeType& type : family)
        LOCKSTEP_CHECK(
            table.emplace(type.name, &type).second, "op {} is in two families", type.name);
    return table;
  }();
  const auto found = kTable.find(op);
  return found == kTable.end() ? nullptr : found->second;
}

}  // namespace

std::vector<std::span<const NodeType>> all_families() {
  return {activation_nodes(), element_index_nodes(),  attention_nodes(),   convolution_nodes(),
          creation_nodes(),   cumulative_sum_nodes(), einsum_nodes(),      elementwise_nodes(),
          gather_nodes(),     gather_nd_nodes(),      layer_norm_nodes(),  loss_nodes(),
          movement_nodes(),   norm_nodes(),           pixel_block_nodes(), pooling_nodes(),
          product_nodes(),    random_nodes(),         recurrence_nodes(),  reduction_nodes(),
          resizing_nodes(),   slicing_nodes(),        softmax_nodes(),     trilu_nodes()};
}

const NodeType* type_of(const Node& node) { return node.domain.empty() ? find(node.op) : nullptr; }

LowerNode lower_of(const Node& node) {
  const NodeType* const type = type_of(node);
  if (type == nullptr) return nullptr;
  return type->lowered.formula != nullptr ? lower_pointwise : type->lowered.function;
}

PointwiseOf formula_of(const std::string& op) {
  const NodeType* const type = find(op);
  return type == nullptr ? nullptr : type->lowered.formula;
}

}  // namespace lockstep::onnx
