// Ops with indices of elements: Gather and its variants, ScatterND, OneHot, NonZero.

#include <algorithm>

#include "models/onnx/rules/strided.h"
#include "models/onnx/rules/table.h"

namespace lockstep::onnx {
namespace {

// The index, counted from the end if it is below 0. Rejects an index outside of the axis.
int64_t checked_index(const NodeView& node, int64_t index, int64_t extent) {
  if (index < -extent || index >= extent)
    node.refuse("index {} of an axis of extent {}; must be within {} and {}",
                index,
                extent,
                -extent,
                extent - 1);
  return index < 0 ? index + extent : index;
}

// Rejects constant indices outside of the axis, before a network trains with them.
void require_within(const NodeView& node, int64_t extent) {
  if (!node.known(1)) return;
  for (const int64_t index : node.known_integers(1)) checked_index(node, index, extent);
}

// Builds an array from elements of another one.
class Picker {
 public:
  Picker(const Array& from, Extents to)
      : from_(from), bytes_(size_of(from.type)), made_(make_array(from.type, std::move(to))) {}
  // Appends `count` elements, from `offset` on.
  void pick(int64_t offset, int64_t count = 1) {
    const size_t length = static_cast<size_t>(count) * bytes_;
    std::copy_n(from_.data.get() + static_cast<size_t>(offset) * bytes_, length, made_.data + at_);
    at_ += length;
  }
  Array array() const { return made_.array; }

 private:
  const Array& from_;
  size_t bytes_;
  NewArray made_;
  size_t at_ = 0;
};

size_t gather_axis(const NodeView& node) {
  return node.axis(node.integer("axis", 0), node.rank(0));
}

std::vector<Form> rule_gather(const NodeView& node) {
  node.require_integers(1);
  const Extents& from = node.extents(0);
  const auto axis = static_cast<int64_t>(gather_axis(node));
  require_within(node, from[static_cast<size_t>(axis)]);
  Extents to(from.begin(), from.begin() + axis);
  to.insert(to.end(), node.extents(1).begin(), node.extents(1).end());
  to.insert(to.end(), from.begin() + axis + 1, from.end());
  return {{node.type(0), to}};
}

std::vector<Array> evaluate_gather(const NodeView& node, const std::vector<Form>& outputs) {
  const Extents& from = node.extents(0);
  const size_t axis = gather_axis(node);
  const int64_t outer = product(from, 0, axis);
  const int64_t inner = product(from, axis + 1, from.size());
  Picker picker(node.array(0), outputs[0].extents);
  std::vector<int64_t> indices = node.known_integers(1);
  for (int64_t& index : indices) index = checked_index(node, index, from[axis]);
  for (int64_t row = 0; row < outer; ++row)
    for (const int64_t index : indices) picker.pick((row * from[axis] + index) * inner, inner);
  return {picker.array()};
}

std::vector<Form> rule_gather_elements(const NodeView& node) {
  node.require_integers(1);
  node.require_rank(1, node.rank(0), node.rank(0));
  const size_t axis = gather_axis(node);
  for (size_t i = 0; i < node.extents(0).size(); ++i)
    if (i != axis && node.extents(1)[i] > node.extents(0)[i])
      node.refuse(
          "its indices have extents {} and the value {}; they may be longer only in axis {}",
          to_string(node.extents(1)),
          to_string(node.extents(0)),
          axis);
  require_within(node, node.extents(0)[axis]);
  return {{node.type(0), node.extents(1)}};
}

std::vector<Array> evaluate_gather_elements(const NodeView& node,
                                            const std::vector<Form>& outputs) {
  const size_t axis = gather_axis(node);
  std::vector<int64_t> strides = strides_of(node.extents(0));
  const int64_t stride = strides[axis];
  strides[axis] = 0;
  const int64_t extent = node.extents(0)[axis];
  Picker picker(node.array(0), outputs[0].extents);
  const std::vector<int64_t> indices = node.known_integers(1);
  auto index = indices.begin();
  for_each_offset(outputs[0].extents, strides, 0, 0, node.array(1).size(), [&](int64_t offset) {
    picker.pick(offset + checked_index(node, *index++, extent) * stride);
  });
  return {picker.array()};
}

// The number of axes that an index of GatherND or ScatterND covers: the extent of the last axis of
// input 1.
int64_t index_length(const NodeView& node, int64_t batch_axes) {
  node.require_type(1, ElementType::kInt64);
  if (node.rank(1) < 1 || node.rank(0) < 1) node.refuse("data and indices must have an axis");
  const int64_t length = node.extents(1).back();
  if (length < 1 || length > node.rank(0) - batch_axes)
    node.refuse(
        "its indices address {} axes, but the value has {}", length, node.rank(0) - batch_axes);
  return length;
}

size_t batch_axes_of(const NodeView& node) {
  const int64_t count = node.integer("batch_dims", 0, 0, kMaxExtent);
  if (count >= std::min(node.rank(0), node.rank(1)))
    node.refuse("attribute batch_dims is {}; must be below the number of axes", count);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i)
    if (node.extents(0)[i] != node.extents(1)[i])
      node.refuse("the extents {} and {} of its inputs differ in batch axis {}",
                  to_string(node.extents(0)),
                  to_string(node.extents(1)),
                  i);
  return static_cast<size_t>(count);
}

std::vector<Form> rule_gather_nd(const NodeView& node) {
  const size_t batch = batch_axes_of(node);
  const int64_t length = index_length(node, static_cast<int64_t>(batch));
  const Extents& from = node.extents(0);
  if (node.known(1)) {
    const std::vector<int64_t> indices = node.known_integers(1);
    for (size_t i = 0; i < indices.size(); ++i)
      checked_index(node, indices[i], from[batch + i % static_cast<size_t>(length)]);
  }
  Extents to(node.extents(1).begin(), node.extents(1).end() - 1);
  to.insert(to.end(), from.begin() + static_cast<int64_t>(batch) + length, from.end());
  return {{node.type(0), to}};
}

// The offset of the slice at `index`, which covers `length` axes beginning with `first`.
int64_t offset_of(const NodeView& node,
                  const std::vector<int64_t>& strides,
                  size_t first,
                  const int64_t* index,
                  int64_t length) {
  int64_t offset = 0;
  for (size_t i = 0; i < static_cast<size_t>(length); ++i)
    offset += checked_index(node, index[i], node.extents(0)[first + i]) * strides[first + i];
  return offset;
}

std::vector<Array> evaluate_gather_nd(const NodeView& node, const std::vector<Form>& outputs) {
  const size_t batch = batch_axes_of(node);
  const Extents& from = node.extents(0);
  const int64_t length = node.extents(1).back();
  const std::vector<int64_t> strides = strides_of(from);
  const int64_t inner = product(from, batch + static_cast<size_t>(length), from.size());
  const int64_t batches = product(from, 0, batch);
  const int64_t stride = product(from, batch, from.size());
  const std::vector<int64_t> indices = node.known_integers(1);
  const int64_t count = batches == 0 ? 0 : node.array(1).size() / length / batches;
  Picker picker(node.array(0), outputs[0].extents);
  for (int64_t i = 0; i < count * batches; ++i) {
    const int64_t* index = indices.data() + i * length;
    picker.pick(i / count * stride + offset_of(node, strides, batch, index, length), inner);
  }
  return {picker.array()};
}

std::vector<Form> rule_scatter_nd(const NodeView& node) {
  node.require_inputs(3, 3);
  node.require_same_type(0, 2);
  const int64_t length = index_length(node, 0);
  Extents updates(node.extents(1).begin(), node.extents(1).end() - 1);
  updates.insert(updates.end(), node.extents(0).begin() + length, node.extents(0).end());
  if (updates != node.extents(2))
    node.refuse("its updates have extents {}; must have {}",
                to_string(node.extents(2)),
                to_string(updates));
  return {node.form(0)};
}

std::vector<Array> evaluate_scatter_nd(const NodeView& node, const std::vector<Form>&) {
  if (node.node().text("reduction", "none") != "none")
    node.refuse(
        "attribute reduction; must be none if the result is computed before training starts");
  const Array& from = node.array(0);
  const Array& updates = node.array(2);
  const int64_t length = node.extents(1).back();
  const std::vector<int64_t> strides = strides_of(from.extents);
  const size_t bytes =
      static_cast<size_t>(product(from.extents, static_cast<size_t>(length), from.extents.size())) *
      size_of(from.type);
  NewArray made = make_array(from.type, from.extents);
  std::copy_n(from.data.get(), from.bytes(), made.data);
  const std::vector<int64_t> indices = node.known_integers(1);
  const size_t count = indices.size() / static_cast<size_t>(length);
  for (size_t i = 0; i < count; ++i) {
    const int64_t* index = indices.data() + i * static_cast<size_t>(length);
    const auto at = static_cast<size_t>(offset_of(node, strides, 0, index, length));
    std::copy_n(updates.data.get() + i * bytes, bytes, made.data + at * size_of(from.type));
  }
  return {made.array};
}

std::vector<Form> rule_one_hot(const NodeView& node) {
  node.require_inputs(3, 3);
  node.require_rank(2, 1, 1);
  if (node.extents(2)[0] != 2) node.refuse("its input 2 must be two numbers");
  const int64_t depth = node.known_integer(1);
  const int64_t rank = node.rank(0) + 1;
  Form to{node.type(2), node.extents(0)};
  const size_t axis = node.axis(node.integer("axis", -1), rank);
  to.extents.insert(to.extents.begin() + static_cast<int64_t>(axis), depth);
  return {to};
}

std::vector<Array> evaluate_one_hot(const NodeView& node, const std::vector<Form>& outputs) {
  const Extents& to = outputs[0].extents;
  const size_t axis = node.axis(node.integer("axis", -1), node.rank(0) + 1);
  const std::vector<int64_t> indices = node.known_integers(0);
  const int64_t depth = to[axis];
  const int64_t inner = product(to, axis + 1, to.size());
  Picker picker(node.array(2), to);
  for (int64_t i = 0; i < elements(to); ++i) {
    const int64_t at = i / inner % depth;
    int64_t index = indices[static_cast<size_t>(i / (inner * depth) * inner + i % inner)];
    if (index < 0 && index >= -depth) index += depth;
    picker.pick(index == at ? 1 : 0);
  }
  return {picker.array()};
}

// The indices of all elements that are not 0: (axes, count).
std::vector<int64_t> non_zero_indices(const NodeView& node, int64_t& count) {
  if (!node.known(0))
    node.refuse(
        "the number of nonzero elements depends on data, but extents must be known before training "
        "starts: replace the op in the model by Where or a mask");
  const std::vector<double> values = node.array(0).as_double();
  const std::vector<int64_t> strides = strides_of(node.extents(0));
  count = std::count_if(values.begin(), values.end(), [](double x) { return x != 0; });
  std::vector<int64_t> indices;
  for (size_t axis = 0; axis < strides.size(); ++axis)
    for (size_t i = 0; i < values.size(); ++i)
      if (values[i] != 0)
        indices.push_back(static_cast<int64_t>(i) / strides[axis] % node.extents(0)[axis]);
  return indices;
}

std::vector<Form> rule_non_zero(const NodeView& node) {
  int64_t count = 0;
  non_zero_indices(node, count);
  return {{ElementType::kInt64, {node.rank(0), count}}};
}

std::vector<Array> evaluate_non_zero(const NodeView& node, const std::vector<Form>& outputs) {
  int64_t count = 0;
  return {array_of_int64(outputs[0].extents, non_zero_indices(node, count))};
}

constexpr Op kOps[] = {
    {"Gather", rule_gather, evaluate_gather},
    {"GatherElements", rule_gather_elements, evaluate_gather_elements},
    {"GatherND", rule_gather_nd, evaluate_gather_nd},
    {"ScatterND", rule_scatter_nd, evaluate_scatter_nd},
    {"OneHot", rule_one_hot, evaluate_one_hot},
    {"NonZero", rule_non_zero, evaluate_non_zero},
};

}  // namespace

std::span<const Op> indexing_ops() { return kOps; }

}  // namespace lockstep::onnx
