// Ops that change extents or the order of elements: Reshape, Transpose, Expand, Tile ... Their
// extents are known, so attributes matter only if they determine which elements are taken.
#include <string>

#include "models/onnx/nodes/elementwise.h"
#include "models/onnx/nodes/lowering/fusion_plan.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/operands.h"
#include "models/onnx/nodes/strided.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

Extents reshaped(const NodeView& node, const Extents& from, std::vector<int64_t> shape) {
  const bool allow_zero = node.integer("allowzero", 0) != 0;
  int64_t open = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && !allow_zero) {
      if (i >= from.size())
        node.refuse("shape {} copies axis {}, which its input with extents {} lacks",
                    to_string(shape),
                    i,
                    to_string(from));
      shape[i] = from[i];
    } else if (shape[i] == -1) {
      if (open >= 0) node.refuse("shape {} has -1 more than once", to_string(shape));
      open = static_cast<int64_t>(i);
      shape[i] = 1;
    } else if (shape[i] < 0) {
      node.refuse("shape {}; must have no number below -1", to_string(shape));
    }
  }
  const int64_t given = checked_elements(node, shape);
  const int64_t count = elements(from);
  if (open >= 0 && given > 0) shape[static_cast<size_t>(open)] = count / given;
  if (open >= 0 && given == 0)
    node.refuse("the -1 in shape {} cannot be inferred, because the other extents multiply to 0",
                to_string(shape));
  if (checked_elements(node, shape) != count)
    node.refuse(
        "extents {} do not fit the shape {}: if the shape was exported with another batch, export "
        "with dynamic_shapes that leave the batch open",
        to_string(from),
        to_string(shape));
  return shape;
}

std::vector<Form> rule_reshape(const NodeView& node) {
  node.require_inputs(2, 2);
  node.require_integers(1);
  node.require_rank(1, 1, 1);
  return {{node.type(0), reshaped(node, node.extents(0), node.known_integers(1))}};
}

std::vector<Form> rule_flatten(const NodeView& node) {
  const int64_t rank = node.rank(0);
  const int64_t axis = node.integer("axis", 1, -rank, rank);
  const auto at = static_cast<size_t>(axis < 0 ? axis + rank : axis);
  const Extents& from = node.extents(0);
  return {{node.type(0), {product(from, 0, at), product(from, at, from.size())}}};
}

std::vector<Form> rule_squeeze(const NodeView& node) {
  const Extents& from = node.extents(0);
  const auto list = node.list("axes", 1);
  std::vector<bool> drop(from.size());
  if (list) {
    for (const size_t axis : node.axes(*list, node.rank(0))) drop[axis] = true;
  } else {
    for (size_t i = 0; i < from.size(); ++i) drop[i] = from[i] == 1;
  }
  Extents to;
  for (size_t i = 0; i < from.size(); ++i) {
    if (drop[i] && from[i] != 1)
      node.refuse("axis {} of {} is squeezed; must have extent 1", i, to_string(from));
    if (!drop[i]) to.push_back(from[i]);
  }
  return {{node.type(0), to}};
}

std::vector<Form> rule_unsqueeze(const NodeView& node) {
  const auto list = node.list("axes", 1);
  if (!list) node.refuse("has no axes");
  const Extents& from = node.extents(0);
  Extents to(from.size() + list->size(), -1);
  for (const size_t axis : node.axes(*list, static_cast<int64_t>(to.size()))) to[axis] = 1;
  auto next = from.begin();
  for (int64_t& extent : to)
    if (extent < 0) extent = *next++;
  return {{node.type(0), to}};
}

// Evaluates all ops that keep the order of elements.
std::vector<Array> evaluate_same_order(const NodeView& node, const std::vector<Form>& outputs) {
  return {with_extents(node.array(0), outputs[0].extents)};
}

std::vector<size_t> order_of(const NodeView& node) {
  std::vector<int64_t> order = node.node().integers("perm");
  if (order.empty())
    for (int64_t axis = node.rank(0); axis-- > 0;) order.push_back(axis);
  if (static_cast<int64_t>(order.size()) != node.rank(0))
    node.refuse("attribute perm has {} axes; must have {}", order.size(), node.rank(0));
  return node.axes(order, node.rank(0));
}

std::vector<Form> rule_transpose(const NodeView& node) {
  Form to{node.type(0), {}};
  for (const size_t axis : order_of(node)) to.extents.push_back(node.extents(0)[axis]);
  return {to};
}

std::vector<Array> evaluate_transpose(const NodeView& node, const std::vector<Form>& outputs) {
  const std::vector<int64_t> from = strides_of(node.extents(0));
  std::vector<int64_t> strides;
  for (const size_t axis : order_of(node)) strides.push_back(from[axis]);
  return {strided_copy(node.array(0), outputs[0].extents, strides)};
}

std::vector<Form> rule_expand(const NodeView& node) {
  node.require_integers(1);
  node.require_rank(1, 1, 1);
  const Extents shape = node.known_integers(1);
  checked_elements(node, shape);
  return {{node.type(0), broadcast(node, node.extents(0), shape)}};
}

std::vector<Array> evaluate_expand(const NodeView& node, const std::vector<Form>& outputs) {
  return {broadcast_to(node.array(0), outputs[0].extents)};
}

std::vector<int64_t> repeats_of(const NodeView& node) {
  const std::vector<int64_t> repeats = node.known_integers(1);
  if (static_cast<int64_t>(repeats.size()) != node.rank(0))
    node.refuse(
        "has {} repeats for {} axes; must have one for each axis", repeats.size(), node.rank(0));
  checked_elements(node, repeats);
  return repeats;
}

std::vector<Form> rule_tile(const NodeView& node) {
  node.require_integers(1);
  const std::vector<int64_t> repeats = repeats_of(node);
  Form to = node.form(0);
  for (size_t i = 0; i < repeats.size(); ++i)
    if (__builtin_mul_overflow(to.extents[i], repeats[i], &to.extents[i]))
      node.refuse("repeats {} are too many", to_string(repeats));
  return {to};
}

// Tile is a broadcast over a new axis of repeats before each axis.
std::vector<Array> evaluate_tile(const NodeView& node, const std::vector<Form>& outputs) {
  const std::vector<int64_t> repeats = repeats_of(node);
  Extents from;
  Extents to;
  for (size_t i = 0; i < repeats.size(); ++i) {
    from.insert(from.end(), {1, node.extents(0)[i]});
    to.insert(to.end(), {repeats[i], node.extents(0)[i]});
  }
  const Array tiled = broadcast_to(with_extents(node.array(0), from), to);
  return {with_extents(tiled, outputs[0].extents)};
}

// If the pixels of channels-last images are merged into one axis, they stay channels last.
void lower_reshape(Lowering& lowering, const Node& node) {
  if (lower_as_group_norm(lowering, node)) return;
  graph::GraphBuilder& builder = lowering.builder();
  const Extents& from = lowering.value(node.input(0)).extents;
  const Shape shape = shape_of(lowering.value(node.output(0)));
  if (lowering.layouts().is_channels_last(node.input(0)) && shape.rank() == 3 &&
      shape[0] == from[0] && shape[1] == from[1]) {
    const TensorId y = ops::reshape(builder,
                                    lowering.name_of(node),
                                    lowering.layouts().channels_last(node.input(0)),
                                    {shape[0], shape[2], shape[1]});
    return set_output(lowering, node, y, /*channels_last=*/true);
  }
  const TensorId x = input_of(lowering, node, 0);
  set_output(lowering, node, shaped(builder, lowering.name_of(node), x, shape));
}

// Elements are not moved before an op requires it, because some ops accept transposed inputs.
void lower_transpose(Lowering& lowering, const Node& node) {
  const Layouts::Transposed x = lowering.layouts().physical_layout(node.input(0));
  std::vector<int> permutation;
  for (const size_t axis : order_of(lowering.readers().view(node)))
    permutation.push_back(x.permutation[axis]);
  lowering.layouts().set_transposed(node.output(0), x.tensor, permutation);
}

void lower_expand(Lowering& lowering, const Node& node) {
  set_output(lowering,
             node,
             ops::expand(lowering.builder(),
                         lowering.name_of(node),
                         input_of(lowering, node, 0),
                         shape_of(lowering.value(node.output(0)))));
}

void lower_tile(Lowering& lowering, const Node& node) {
  const TensorId x = input_of(lowering, node, 0);
  const TensorId y = ops::tile(
      lowering.builder(), lowering.name_of(node), x, repeats_of(lowering.readers().view(node)));
  set_output(lowering, node, y);
}

constexpr NodeType kNodes[] = {
    {"Identity", rule_same, {}, evaluate_same_order},
    {"Reshape", rule_reshape, lower_reshape, evaluate_same_order},
    {"Flatten", rule_flatten, lower_reshape, evaluate_same_order},
    {"Squeeze", rule_squeeze, lower_reshape, evaluate_same_order},
    {"Unsqueeze", rule_unsqueeze, lower_reshape, evaluate_same_order},
    {"Transpose", rule_transpose, lower_transpose, evaluate_transpose},
    {"Expand", rule_expand, lower_expand, evaluate_expand},
    {"Tile", rule_tile, lower_tile, evaluate_tile},
};

}  // namespace

std::span<const NodeType> movement_nodes() { return kNodes; }

}  // namespace lockstep::onnx
