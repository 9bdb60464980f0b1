// Ops that change extents or the order of elements: Reshape, Transpose, Expand, Tile ...

#include <algorithm>
#include <string>

#include "models/onnx/rules/elementwise.h"
#include "models/onnx/rules/strided.h"
#include "models/onnx/rules/table.h"

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

// Blocks of pixels are rearranged by a reshape to `between`, a transposition of its axes by
// `order`, and a reshape to `after`.
struct Blocks {
  Extents between;
  std::vector<size_t> order;
  Extents after;
};

int64_t block_size(const NodeView& node) {
  node.require_rank(0, 4, 4);
  return node.integer("blocksize", 0, 1, 256);
}

Blocks depth_to_space(const NodeView& node) {
  const int64_t b = block_size(node);
  const Extents& e = node.extents(0);
  if (e[1] % (b * b) != 0) node.refuse("has {} channels; must have a multiple of {}", e[1], b * b);
  const int64_t c = e[1] / (b * b);
  const Extents after = {e[0], c, e[2] * b, e[3] * b};
  const std::string mode = node.node().text("mode", "DCR");
  if (mode == "DCR") return {{e[0], b, b, c, e[2], e[3]}, {0, 3, 4, 1, 5, 2}, after};
  if (mode != "CRD") node.refuse("attribute mode is {}; must be DCR or CRD", mode);
  return {{e[0], c, b, b, e[2], e[3]}, {0, 1, 4, 2, 5, 3}, after};
}

Blocks space_to_depth(const NodeView& node) {
  const int64_t b = block_size(node);
  const Extents& e = node.extents(0);
  if (e[2] % b != 0 || e[3] % b != 0)
    node.refuse("extents {}; height and width must be multiples of {}", to_string(e), b);
  return {{e[0], e[1], e[2] / b, b, e[3] / b, b},
          {0, 3, 5, 1, 2, 4},
          {e[0], e[1] * b * b, e[2] / b, e[3] / b}};
}

template <Blocks (*kBlocks)(const NodeView&)>
std::vector<Form> rule_blocks(const NodeView& node) {
  return {{node.type(0), kBlocks(node).after}};
}

template <Blocks (*kBlocks)(const NodeView&)>
std::vector<Array> evaluate_blocks(const NodeView& node, const std::vector<Form>&) {
  const Blocks blocks = kBlocks(node);
  const std::vector<int64_t> from = strides_of(blocks.between);
  Extents extents;
  std::vector<int64_t> strides;
  for (const size_t axis : blocks.order) {
    extents.push_back(blocks.between[axis]);
    strides.push_back(from[axis]);
  }
  return {with_extents(strided_copy(node.array(0), extents, strides), blocks.after)};
}

constexpr Op kOps[] = {
    {"Identity", rule_same, evaluate_same_order},
    {"Reshape", rule_reshape, evaluate_same_order},
    {"Flatten", rule_flatten, evaluate_same_order},
    {"Squeeze", rule_squeeze, evaluate_same_order},
    {"Unsqueeze", rule_unsqueeze, evaluate_same_order},
    {"Transpose", rule_transpose, evaluate_transpose},
    {"Expand", rule_expand, evaluate_expand},
    {"Tile", rule_tile, evaluate_tile},
    {"DepthToSpace", rule_blocks<depth_to_space>, evaluate_blocks<depth_to_space>},
    {"SpaceToDepth", rule_blocks<space_to_depth>, evaluate_blocks<space_to_depth>},
};

}  // namespace

std::span<const Op> movement_ops() { return kOps; }

}  // namespace lockstep::onnx
