// What works on each element or row by itself.
#include <fmt/format.h>

#include "models/onnx/lowering/layers.h"
#include "runtime/graph/ops/activation.h"
#include "runtime/graph/ops/add.h"
#include "runtime/graph/ops/dropout.h"
#include "runtime/graph/ops/layer_norm.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

Activation activation_of(const Node& node) {
  if (node.op == "Relu") return Activation::kRelu;
  if (node.op == "Tanh") return Activation::kTanh;
  if (node.op == "Swish" && node.number("alpha", 1) == 1) return Activation::kSilu;
  if (node.op == "Gelu")
    return node.text("approximate", "none") == "tanh" ? Activation::kGeluTanh
                                                      : Activation::kGeluErf;
  refuse(node, "is an activation that is not known here");
}

// The value in the order that it is in.
TensorId as_it_lies(Lowering& lowering, int number) {
  return lowering.is_channels_last(number) ? lowering.channels_last(number)
                                           : lowering.plain(number);
}

// A gain or bias of each column.
TensorId parameter_row(Lowering& lowering, const Node& node, int number, int64_t columns) {
  const Lowering::Source source = lowering.source_of(number);
  if (source.value < 0 || lowering.value(source.value).extents != Extents{columns})
    refuse(node, fmt::format("Scale and B: must be {} parameters of the file each", columns));
  return lowering.unshared_parameter(source.value);
}

}  // namespace

void lower_activation(Lowering& lowering, const Node& node) {
  const bool last = lowering.is_channels_last(node.input(0));
  const TensorId y = ops::activation(lowering.builder(),
                                     lowering.name_of(node),
                                     as_it_lies(lowering, node.input(0)),
                                     activation_of(node));
  lowering.set(node.output(0), y, last);
}

void lower_add(Lowering& lowering, const Node& node) {
  const int a = node.input(0), b = node.input(1);
  const Extents& extents = lowering.value(node.output(0)).extents;
  if (lowering.value(a).extents != extents || lowering.value(b).extents != extents)
    refuse(node, "is a sum of tensors of other extents; broadcasting is not known here");
  const bool last = lowering.is_channels_last(a) || lowering.is_channels_last(b);
  const auto place = [&](int number) {
    return last ? lowering.channels_last(number) : lowering.plain(number);
  };
  const TensorId first = place(a), second = place(b);
  lowering.set(
      node.output(0), ops::add(lowering.builder(), lowering.name_of(node), first, second), last);
}

// The share is an attribute in old files, and in new ones a constant.
void lower_dropout(Lowering& lowering, const Node& node) {
  float ratio = node.number("ratio", 0.5f);
  if (node.input(1) >= 0) {
    const Value& given = lowering.value(node.input(1));
    if (given.kind != ValueKind::kConstant || given.array.size() != 1)
      refuse(node, "ratio: is computed; must be a constant");
    ratio = given.array.as_float()[0];
  }
  if (!(ratio >= 0 && ratio < 1))
    refuse(node, fmt::format("ratio: value is {}; allowed: at least 0 and below 1", ratio));
  const bool last = lowering.is_channels_last(node.input(0));
  const TensorId y = ops::dropout(
      lowering.builder(), lowering.name_of(node), as_it_lies(lowering, node.input(0)), ratio);
  lowering.set(node.output(0), y, last);
}

void lower_layer_normalization(Lowering& lowering, const Node& node) {
  const auto rank = static_cast<int64_t>(lowering.value(node.input(0)).extents.size());
  int64_t axis = node.integer("axis", -1);
  axis += axis < 0 ? rank : 0;
  if (axis != rank - 1) refuse(node, "axis: only norms over the last axis are known here");
  const int64_t columns = lowering.value(node.input(0)).extents.back();
  const TensorId x = lowering.plain(node.input(0));
  const TensorId gain = parameter_row(lowering, node, node.input(1), columns);
  const TensorId bias =
      node.input(2) < 0 ? kNoTensor : parameter_row(lowering, node, node.input(2), columns);
  const auto [sum, y] = ops::layer_norm(lowering.builder(),
                                        lowering.name_of(node),
                                        x,
                                        kNoTensor,
                                        gain,
                                        bias,
                                        node.number("epsilon", 1e-5f));
  lowering.set(node.output(0), y);
}

}  // namespace lockstep::onnx
