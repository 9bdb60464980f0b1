// Ops that only move elements. The extents of outputs are known, so attributes matter only if they
// determine which elements are taken.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "models/onnx/constants.h"
#include "models/onnx/lowering/axes.h"
#include "models/onnx/lowering/layers.h"
#include "runtime/graph/ops/concat.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

// Reorders numbers of the axes (N, C, ...) to (N, ..., C).
void to_channels_last(std::vector<int64_t>& numbers) {
  std::rotate(numbers.begin() + 1, numbers.begin() + 2, numbers.end());
}

}  // namespace

std::vector<int64_t> constant_list(Lowering& lowering, const Node& node, size_t index) {
  const Value& list = lowering.value(lowering.origin_of(node.input(index)));
  if (list.kind != ValueKind::kConstant)
    refuse(node, fmt::format("input {} is computed; must be a constant", index));
  return list.array.as_int64();
}

std::vector<int64_t> list_of(Lowering& lowering,
                             const Node& node,
                             const std::string& attribute,
                             size_t index) {
  return node.input(index) >= 0 ? constant_list(lowering, node, index) : node.integers(attribute);
}

// If the pixels of channels-last images are merged into one axis, they stay channels last.
void lower_reshape(Lowering& lowering, const Node& node) {
  if (lower_as_group_norm(lowering, node)) return;
  GraphBuilder& builder = lowering.builder();
  const Extents& from = lowering.value(node.input(0)).extents;
  const Shape shape = shape_of(lowering.value(node.output(0)));
  if (lowering.is_channels_last(node.input(0)) && shape.rank() == 3 && shape[0] == from[0] &&
      shape[1] == from[1]) {
    const TensorId y = ops::reshape(builder,
                                    lowering.name_of(node),
                                    lowering.channels_last(node.input(0)),
                                    {shape[0], shape[2], shape[1]});
    return lowering.set(node.output(0), y, /*channels_last=*/true);
  }
  const TensorId x = lowering.plain(node.input(0));
  lowering.set(
      node.output(0),
      builder.shape(x) == shape ? x : ops::reshape(builder, lowering.name_of(node), x, shape));
}

// Elements are not moved before an op requires it, because some ops accept transposed inputs.
void lower_transpose(Lowering& lowering, const Node& node) {
  const size_t rank = lowering.value(node.input(0)).extents.size();
  std::vector<int64_t> reversed(rank);
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  const Lowering::Transposed x = lowering.physical_layout(node.input(0));
  std::vector<int> permutation;
  for (const int64_t axis : node.integers("perm", reversed))
    permutation.push_back(x.permutation[static_cast<size_t>(axis)]);
  lowering.set_transposed(node.output(0), x.tensor, permutation);
}

// Keeps the layout of images.
void lower_slice(Lowering& lowering, const Node& node) {
  const Extents& from = lowering.value(node.input(0)).extents;
  std::vector<int64_t> starts(from.size(), 0), steps(from.size(), 1);
  const bool listed = node.input(1) < 0;  // opset 9
  const std::vector<int64_t> given =
      listed ? node.integers("starts") : constant_list(lowering, node, 1);
  std::vector<int64_t> axes(given.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (listed && node.has("axes")) axes = node.integers("axes");
  if (node.input(3) >= 0) axes = constant_list(lowering, node, 3);
  const std::vector<int64_t> by =
      node.input(4) >= 0 ? constant_list(lowering, node, 4) : std::vector<int64_t>(given.size(), 1);
  for (size_t i = 0; i < given.size(); ++i) {
    const auto axis = static_cast<size_t>(axis_of(axes[i], from.size()));
    const int64_t extent = from[axis], start = given[i] < 0 ? given[i] + extent : given[i];
    steps[axis] = by[i];
    starts[axis] = std::clamp<int64_t>(start, 0, std::max<int64_t>(0, extent - 1));
  }
  Shape shape = shape_of(lowering.value(node.output(0)));
  const bool last = lowering.is_channels_last(node.input(0));
  if (last) {
    for (std::vector<int64_t>* list : {&starts, &steps}) to_channels_last(*list);
    std::vector<int64_t> extents = lowering.value(node.output(0)).extents;
    to_channels_last(extents);
    shape = {};
    for (const int64_t extent : extents) shape.append(extent);
  }
  const TensorId x = last ? lowering.channels_last(node.input(0)) : lowering.plain(node.input(0));
  lowering.set(node.output(0),
               ops::slice(lowering.builder(), lowering.name_of(node), x, starts, steps, shape),
               last);
}

void lower_split(Lowering& lowering, const Node& node) {
  const size_t rank = lowering.value(node.input(0)).extents.size();
  const int axis = axis_of(node.integer("axis", 0), rank);
  const TensorId x = lowering.plain(node.input(0));
  std::vector<int64_t> starts(rank, 0);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.output(i) < 0) refuse(node, "has an output without a name; each must have one");
    const Shape shape = shape_of(lowering.value(node.output(i)));
    const std::string name = fmt::format("{}.{}", lowering.name_of(node), i);
    lowering.set(
        node.output(i),
        ops::slice(lowering.builder(), name, x, starts, std::vector<int64_t>(rank, 1), shape));
    starts[static_cast<size_t>(axis)] += shape[axis];
  }
}

// The result is channels last if all inputs are.
void lower_concat(Lowering& lowering, const Node& node) {
  std::vector<int> parts;  // the inputs that are not empty
  std::ranges::copy_if(node.inputs, std::back_inserter(parts), [&](int input) {
    return elements(lowering.value(input).extents) > 0;
  });
  if (parts.size() > kMaxConcatInputs)
    refuse(node, fmt::format("has {} inputs; allowed: at most {}", parts.size(), kMaxConcatInputs));
  const size_t rank = lowering.value(node.output(0)).extents.size();
  int axis = axis_of(node.integer("axis", 0), rank);
  const bool last =
      std::ranges::all_of(parts, [&](int input) { return lowering.is_channels_last(input); });
  if (last) axis = axis_in_last(axis, rank);
  std::vector<TensorId> inputs;
  for (const int input : parts)
    inputs.push_back(last ? lowering.channels_last(input) : lowering.plain(input));
  lowering.set(
      node.output(0), ops::concat(lowering.builder(), lowering.name_of(node), inputs, axis), last);
}

// Pads with a constant. Keeps the layout of images.
void lower_pad(Lowering& lowering, const Node& node) {
  if (node.text("mode", "constant") != "constant")
    refuse(node, fmt::format("mode: value is {}; allowed: constant", node.text("mode", "")));
  const auto rank = lowering.value(node.input(0)).extents.size();
  const std::vector<int64_t> pads =
      node.input(1) >= 0 ? constant_list(lowering, node, 1) : node.integers("pads");
  std::vector<int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (node.input(3) >= 0) axes = constant_list(lowering, node, 3);
  if (pads.size() != 2 * axes.size()) refuse(node, "pads: must be two numbers for each axis");
  std::vector<int64_t> before(rank, 0), after(rank, 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(axis_of(axes[i], rank));
    before[axis] = pads[i];
    after[axis] = pads[i + axes.size()];
  }
  float fill = node.number("value", 0);
  if (node.input(2) >= 0) {
    const auto given = number_of(lowering.value(lowering.origin_of(node.input(2))));
    if (!given) refuse(node, "constant_value: is computed; must be a constant");
    fill = *given;
  }
  const bool last = lowering.is_channels_last(node.input(0));
  if (last) {
    for (std::vector<int64_t>* list : {&before, &after}) to_channels_last(*list);
  }
  const TensorId x = last ? lowering.channels_last(node.input(0)) : lowering.plain(node.input(0));
  lowering.set(node.output(0),
               ops::pad(lowering.builder(), lowering.name_of(node), x, before, after, fill),
               last);
}

void lower_expand(Lowering& lowering, const Node& node) {
  lowering.set(node.output(0),
               ops::expand(lowering.builder(),
                           lowering.name_of(node),
                           lowering.plain(node.input(0)),
                           shape_of(lowering.value(node.output(0)))));
}

}  // namespace lockstep::onnx
