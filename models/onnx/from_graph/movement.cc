// Ops that only move elements.
#include <algorithm>
#include <limits>

#include "models/onnx/from_graph/op_rows.h"
#include "runtime/graph/ops/concat.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

using namespace graph;
using IntegerList = std::vector<int64_t>;

// Reshapes the value of x, whose axes are those of the tensor `from`, to the tensor y. An open axis
// is copied from its place in `from` (0), or one follows from the number of elements (-1).
std::string reshaped(GraphWriter& writer, const std::string& x, TensorId from, TensorId y) {
  IntegerList extents;
  for (int d = 0; d < writer.shape(y).rank(); ++d) {
    const char* const open = writer.open_axis(y, d);
    const bool same =
        open != nullptr && d < writer.shape(from).rank() && writer.open_axis(from, d) == open;
    extents.push_back(open == nullptr ? writer.shape(y)[d] : same ? 0 : -1);
  }
  if (std::ranges::count(extents, -1) > 1) writer.refuse("a reshape with several open axes");
  return writer.node("Reshape", {x, writer.integers(extents)});
}

void write_reshape(GraphWriter& writer, const Op& op) {
  const TensorId x = op.inputs[RearrangeIn::kX], y = op.outputs[RearrangeOut::kY];
  writer.set(y, reshaped(writer, writer.plain(x), x, y));
}

// The nodes of a view of x, one step after the other: slice x, transpose it, insert axes along
// which it is repeated, and pad it.
class ViewNodes {
 public:
  ViewNodes(GraphWriter& writer, const Op& op, std::vector<ViewAxis> axes, Shape x, float fill)
      : writer_(writer), op_(op), axes_(std::move(axes)), x_(x), fill_(fill) {}

  std::string of(std::string value) const {
    return padded(expanded(transposed(sliced(std::move(value)))));
  }

 private:
  static int64_t reads(const ViewAxis& axis) { return axis.end - axis.begin; }

  std::string sliced(const std::string& value) const {
    IntegerList starts, ends, dimensions, steps;
    for (const ViewAxis& axis : axes_) {
      if (axis.source == ViewAxis::kNone) continue;
      if (axis.start == 0 && axis.move == 1 && reads(axis) == x_[axis.source]) continue;
      const int64_t end = axis.start + reads(axis) * axis.move;
      starts.push_back(axis.start);
      ends.push_back(end < 0 ? std::numeric_limits<int64_t>::min() : end);
      dimensions.push_back(axis.source);
      steps.push_back(axis.move);
    }
    if (starts.empty()) return value;
    return writer_.node("Slice",
                        {value,
                         writer_.integers(starts),
                         writer_.integers(ends),
                         writer_.integers(dimensions),
                         writer_.integers(steps)});
  }

  std::string transposed(const std::string& value) const {
    IntegerList order;
    for (const ViewAxis& axis : axes_)
      if (axis.source != ViewAxis::kNone) order.push_back(axis.source);
    if (std::ranges::is_sorted(order)) return value;
    return writer_.node("Transpose", {value}, {{"perm", order}});
  }

  std::string expanded(std::string value) const {
    IntegerList added;
    bool repeats = false;
    for (size_t d = 0; d < axes_.size(); ++d) {
      if (axes_[d].source != ViewAxis::kNone) continue;
      added.push_back(static_cast<int64_t>(d));
      repeats = repeats || axes_[d].extent != 1;
    }
    if (!added.empty()) value = writer_.node("Unsqueeze", {value, writer_.integers(added)});
    if (!repeats) return value;
    Names extents;
    for (size_t d = 0; d < axes_.size(); ++d) extents.push_back(repeats_of(d));
    const std::string shape = writer_.node("Concat", extents, {{"axis", int64_t{0}}});
    return writer_.node("Expand", {value, shape});
  }

  std::string repeats_of(size_t d) const {
    const TensorId y = op_.outputs[RearrangeOut::kY];
    if (axes_[d].source != ViewAxis::kNone) return writer_.integers({1});
    if (static_cast<int>(axes_.size()) == writer_.shape(y).rank())
      return writer_.length(y, static_cast<int>(d));
    return writer_.integers({axes_[d].extent});
  }

  std::string padded(const std::string& value) const {
    IntegerList before, behind;
    for (const ViewAxis& axis : axes_) {
      const bool is_new = axis.source == ViewAxis::kNone;
      before.push_back(is_new ? 0 : axis.begin);
      behind.push_back(is_new ? 0 : axis.extent - axis.end);
    }
    before.insert(before.end(), behind.begin(), behind.end());
    if (std::ranges::count(before, 0) == std::ssize(before)) return value;
    return writer_.node(
        "Pad", {value, writer_.integers(before), writer_.number(static_cast<double>(fill_))});
  }

  GraphWriter& writer_;
  const Op& op_;
  const std::vector<ViewAxis> axes_;
  const Shape x_;
  const float fill_;
};

// Whether y has the dimensions of images x in their order.
bool keeps_images(const std::vector<ViewAxis>& axes) {
  for (size_t d = 0; d < axes.size(); ++d)
    if (axes[d].source != static_cast<int>(d)) return false;
  return axes.size() == 4;
}

// The axes of (N, H, W, C), for (N, C, H, W).
std::vector<ViewAxis> with_channels_first(const std::vector<ViewAxis>& axes) {
  std::vector<ViewAxis> ordered = {axes[0], axes[3], axes[1], axes[2]};
  for (size_t d = 0; d < ordered.size(); ++d) ordered[d].source = static_cast<int>(d);
  return ordered;
}

void write_rearrange(GraphWriter& writer, const Op& op) {
  const auto& attributes = op.as<RearrangeAttributes>();
  const TensorId x = op.inputs[RearrangeIn::kX], y = op.outputs[RearrangeOut::kY];
  const Shape shape = writer.shape(x);
  const std::vector<ViewAxis>& axes = attributes.axes;
  if (axes.empty()) writer.refuse("a view that was made of several");
  const float fill = attributes.views.view.fill;
  if (keeps_images(axes) && writer.is_channels_first(x)) {
    const ViewNodes view(
        writer, op, with_channels_first(axes), {shape[0], shape[3], shape[1], shape[2]}, fill);
    return writer.set_channels_first(y, view.of(writer.channels_first(x)));
  }
  const std::string value = ViewNodes(writer, op, axes, shape, fill).of(writer.plain(x));
  const bool complete = static_cast<int>(axes.size()) == writer.shape(y).rank();
  writer.set(y, complete ? value : reshaped(writer, value, x, y));
}

// The axis along which the first part differs from the whole.
void write_concat(GraphWriter& writer, const Op& op) {
  const TensorId y = op.outputs[ConcatOut::kY], first = op.inputs[ConcatIn::kX];
  int64_t axis = 0;
  for (int d = 0; d < writer.shape(y).rank(); ++d)
    if (writer.shape(first)[d] != writer.shape(y)[d]) axis = d;
  Names parts;
  for (const TensorId part : op.inputs) parts.push_back(writer.plain(part));
  writer.set(y, writer.node("Concat", parts, {{"axis", axis}}));
}

constexpr OpRow kRows[] = {
    {OpKind::kReshape, write_reshape},
    {OpKind::kRearrange, write_rearrange},
    {OpKind::kConcat, write_concat},
};

}  // namespace

std::span<const OpRow> movement_rows() { return kRows; }

}  // namespace lockstep::onnx
