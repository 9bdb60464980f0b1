#include "models/onnx/rules/table.h"

#include <string_view>
#include <unordered_map>

namespace lockstep::onnx {
namespace {

using Table = std::unordered_map<std::string_view, const Op*>;

Table make_table() {
  Table table;
  for (const std::span<const Op> family : all_families()) {
    for (const Op& op : family) {
      const bool added = table.emplace(op.name, &op).second;
      LOCKSTEP_CHECK(added, "op {} is in two families", op.name);
    }
  }
  return table;
}

}  // namespace

std::vector<std::span<const Op>> all_families() {
  return {activation_ops(),
          attention_ops(),
          convolution_ops(),
          creation_ops(),
          elementwise_ops(),
          indexing_ops(),
          movement_ops(),
          normalization_ops(),
          product_ops(),
          random_ops(),
          recurrence_ops(),
          reduction_ops(),
          resizing_ops(),
          slicing_ops()};
}

const Op* find_op(const Node& node) {
  static const Table table = make_table();
  if (!node.domain.empty()) return nullptr;
  const auto found = table.find(node.op);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace lockstep::onnx
