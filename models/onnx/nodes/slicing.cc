// Ops that slice and concatenate values: Concat, Split, Slice, Pad.
#include "models/onnx/nodes/slicing.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/operands.h"
#include "models/onnx/nodes/strided.h"
#include "runtime/graph/ops/concat.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

std::vector<Form> rule_concat(const NodeView& node) {
  Form form = node.form(0);
  const size_t axis = node.axis(node.integer("axis", 0), node.rank(0));
  for (size_t index = 1; index < node.inputs(); ++index) {
    node.require_same_type(0, index);
    Extents others = node.extents(index);
    if (others.size() != form.extents.size())
      node.refuse("its inputs 0 and {} have {} and {} axes; must have the same number",
                  index,
                  form.extents.size(),
                  others.size());
    const int64_t more = others[axis];
    others[axis] = form.extents[axis];
    if (others != form.extents)
      node.refuse("its inputs 0 and {} have extents {} and {}; may differ only in axis {}",
                  index,
                  to_string(node.extents(0)),
                  to_string(node.extents(index)),
                  axis);
    form.extents[axis] += more;
  }
  return {form};
}

std::vector<Array> evaluate_concat(const NodeView& node, const std::vector<Form>& outputs) {
  const Extents& to = outputs[0].extents;
  const size_t axis = node.axis(node.integer("axis", 0), node.rank(0));
  NewArray made = make_array(outputs[0].type, to);
  const auto rows = static_cast<size_t>(product(to, 0, axis));
  std::byte* next = made.data;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t index = 0; index < node.inputs(); ++index) {
      const Array& from = node.array(index);
      const size_t bytes = from.bytes() / rows;
      next = std::copy_n(from.data.get() + row * bytes, bytes, next);
    }
  }
  return {made.array};
}

}  // namespace

std::vector<int64_t> parts_of(const NodeView& node, int64_t extent) {
  if (const auto list = node.list("split", 1)) return *list;
  const auto count = static_cast<int64_t>(node.outputs());
  if (node.integer("num_outputs", count) != count)
    node.refuse("attribute num_outputs is not the number of its outputs, {}", count);
  // The last part may be smaller.
  const int64_t part = count == 0 ? 0 : (extent + count - 1) / count;
  std::vector<int64_t> parts(static_cast<size_t>(count), part);
  if (count > 0) parts.back() = extent - part * (count - 1);
  return parts;
}

namespace {

std::vector<Form> rule_split(const NodeView& node) {
  const Extents& from = node.extents(0);
  const size_t axis = node.axis(node.integer("axis", 0), node.rank(0));
  const std::vector<int64_t> parts = parts_of(node, from[axis]);
  if (parts.size() != node.outputs())
    node.refuse(
        "has {} parts for {} outputs; must have one for each", parts.size(), node.outputs());
  std::vector<Form> forms;
  int64_t rest = from[axis];
  for (const int64_t part : parts) {
    if (part < 0 || part > rest)
      node.refuse("its parts {} do not add up to the axis, which has extent {}",
                  to_string(parts),
                  from[axis]);
    rest -= part;
    forms.push_back(node.form(0));
    forms.back().extents[axis] = part;
  }
  if (rest != 0)
    node.refuse("its parts {} do not add up to the axis, which has extent {}",
                to_string(parts),
                from[axis]);
  return forms;
}

std::vector<Array> evaluate_split(const NodeView& node, const std::vector<Form>& outputs) {
  const std::vector<int64_t> strides = strides_of(node.extents(0));
  const size_t axis = node.axis(node.integer("axis", 0), node.rank(0));
  std::vector<Array> parts;
  int64_t start = 0;
  for (const Form& output : outputs) {
    parts.push_back(strided_copy(node.array(0), output.extents, strides, start * strides[axis]));
    start += output.extents[axis];
  }
  return parts;
}

Cut cut_of(int64_t extent, int64_t start, int64_t end, int64_t step) {
  if (extent == 0) return {0, step, 0};
  const bool back = step < 0;
  // An index below 0 counts from the end. Indices outside of the axis are clamped.
  const auto clamped = [&](int64_t index) {
    if (index < 0) index = index < -extent ? -1 : index + extent;
    return back ? std::clamp<int64_t>(index, -1, extent - 1)
                : std::clamp<int64_t>(index, 0, extent);
  };
  start = clamped(start);
  end = clamped(end);
  const int64_t length = back ? start - end : end - start;
  if (length <= 0) return {0, step, 0};
  // A step longer than the axis gives one element; clamping it avoids overflows.
  step = std::clamp(step, -length, length);
  return {start, step, (length - 1) / (back ? -step : step) + 1};
}

}  // namespace

std::vector<Cut> cuts_of(const NodeView& node) {
  const auto starts = node.list("starts", 1);
  const auto ends = node.list("ends", 2);
  if (!starts || !ends || starts->size() != ends->size())
    node.refuse("must have starts and ends, and as many of each");
  std::vector<int64_t> axes;
  for (size_t i = 0; i < starts->size(); ++i) axes.push_back(static_cast<int64_t>(i));
  axes = node.list("axes", 3).value_or(axes);
  const std::vector<int64_t> steps =
      node.has(4) ? node.known_integers(4) : std::vector<int64_t>(axes.size(), 1);
  if (axes.size() != starts->size() || steps.size() != starts->size())
    node.refuse("must have as many axes and steps as starts");
  std::vector<Cut> cuts;
  for (const int64_t extent : node.extents(0)) cuts.push_back({0, 1, extent});
  const std::vector<size_t> sliced = node.axes(axes, node.rank(0));
  for (size_t i = 0; i < sliced.size(); ++i) {
    if (steps[i] == 0) node.refuse("a step is 0; must be another number");
    Cut& cut = cuts[sliced[i]];
    cut = cut_of(cut.count, (*starts)[i], (*ends)[i], steps[i]);
  }
  return cuts;
}

namespace {

std::vector<Form> rule_slice(const NodeView& node) {
  Form to{node.type(0), {}};
  for (const Cut& cut : cuts_of(node)) to.extents.push_back(cut.count);
  return {to};
}

std::vector<Array> evaluate_slice(const NodeView& node, const std::vector<Form>& outputs) {
  std::vector<int64_t> strides = strides_of(node.extents(0));
  int64_t start = 0;
  const std::vector<Cut> cuts = cuts_of(node);
  for (size_t i = 0; i < cuts.size(); ++i) {
    start += cuts[i].start * strides[i];
    strides[i] = cuts[i].count > 1 ? strides[i] * cuts[i].step : 0;
  }
  return {strided_copy(node.array(0), outputs[0].extents, strides, start)};
}

}  // namespace

std::vector<int64_t> pads_of(const NodeView& node) {
  const auto list = node.list("pads", 1);
  if (!list) node.refuse("has no pads");
  std::vector<int64_t> named;
  for (int64_t axis = 0; axis < node.rank(0); ++axis) named.push_back(axis);
  if (node.has(3)) named = node.known_integers(3);
  const std::vector<size_t> axes = node.axes(named, node.rank(0));
  if (list->size() != 2 * axes.size())
    node.refuse("has {} pads for {} axes; must have two for each", list->size(), axes.size());
  const size_t rank = node.extents(0).size();
  std::vector<int64_t> pads(2 * rank, 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    pads[axes[i]] = (*list)[i];
    pads[rank + axes[i]] = (*list)[axes.size() + i];
  }
  for (const int64_t pad : pads)
    if (pad < -kMaxExtent || pad > kMaxExtent)
      node.refuse("a pad is {}, which is out of range", pad);
  return pads;
}

namespace {

std::vector<Form> rule_pad(const NodeView& node) {
  const std::string mode = node.node().text("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap")
    node.refuse("attribute mode is {}; must be constant, reflect, edge or wrap", mode);
  const std::vector<int64_t> pads = pads_of(node);
  if (node.has(2) && elements(node.extents(2)) > 1)
    node.refuse("its input 2 has extents {}; must be one number", to_string(node.extents(2)));
  Form to = node.form(0);
  const size_t rank = to.extents.size();
  for (size_t i = 0; i < rank; ++i) {
    const bool empty = to.extents[i] == 0;
    to.extents[i] += pads[i] + pads[rank + i];
    if (mode != "constant" && empty && to.extents[i] > 0)
      node.refuse("axis {} has no elements to pad with", i);
  }
  return {to};
}

}  // namespace

int64_t pad_source(const std::string& mode, int64_t index, int64_t extent) {
  if (index >= 0 && index < extent) return index;
  if (mode == "constant") return -1;
  if (mode == "edge") return index < 0 ? 0 : extent - 1;
  const int64_t period = mode == "wrap" ? extent : std::max<int64_t>(2 * (extent - 1), 1);
  index = (index % period + period) % period;
  return mode == "reflect" && index >= extent ? period - index : index;
}

namespace {

std::vector<Array> evaluate_pad(const NodeView& node, const std::vector<Form>& outputs) {
  const Array& from = node.array(0);
  const std::string mode = node.node().text("mode", "constant");
  const std::vector<int64_t> pads = pads_of(node);
  Array fill = array_from<double>(from.type, {1}, {node.node().number("value", 0)});
  if (node.has(2) && node.array(2).size() == 1) fill = cast(node.array(2), from.type);
  const size_t bytes = size_of(from.type);
  const std::vector<int64_t> strides = strides_of(from.extents);
  const Extents& to = outputs[0].extents;
  NewArray made = make_array(from.type, to);
  std::vector<int64_t> indices(to.size(), 0);
  for (int64_t i = 0; i < elements(to); ++i) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < to.size() && offset >= 0; ++axis) {
      const int64_t index = pad_source(mode, indices[axis] - pads[axis], from.extents[axis]);
      offset = index < 0 ? -1 : offset + index * strides[axis];
    }
    const std::byte* source =
        offset < 0 ? fill.data.get() : from.data.get() + static_cast<size_t>(offset) * bytes;
    std::copy_n(source, bytes, made.data + static_cast<size_t>(i) * bytes);
    for (size_t axis = to.size(); axis-- > 0;) {
      if (++indices[axis] < to[axis]) break;
      indices[axis] = 0;
    }
  }
  return {made.array};
}

// Reorders numbers of the axes (N, C, ...) to (N, ..., C).
void to_channels_last(std::vector<int64_t>& numbers) {
  std::rotate(numbers.begin() + 1, numbers.begin() + 2, numbers.end());
}

// Keeps the layout of images.
void lower_slice(Lowering& lowering, const Node& node) {
  std::vector<int64_t> starts, steps;
  for (const Cut& cut : cuts_of(lowering.readers().view(node))) {
    starts.push_back(cut.start);
    steps.push_back(cut.step);
  }
  const Value& to = lowering.value(node.output(0));
  Shape shape = shape_of(to);
  const bool last = lowering.layouts().is_channels_last(node.input(0));
  if (last) {
    for (std::vector<int64_t>* list : {&starts, &steps}) to_channels_last(*list);
    shape = channels_last_shape(to.extents, to.extents.size());
  }
  const TensorId x = input_of(lowering, node, 0, last);
  const TensorId y =
      ops::slice(lowering.builder(), lowering.name_of(node), x, starts, steps, shape);
  set_output(lowering, node, y, last);
}

void lower_split(Lowering& lowering, const Node& node) {
  const size_t rank = lowering.value(node.input(0)).extents.size();
  const int axis = axis_of(node.integer("axis", 0), rank);
  const TensorId x = input_of(lowering, node, 0);
  std::vector<int64_t> starts(rank, 0);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.output(i) < 0) refuse(node, "has an output without a name; each must have one");
    const Shape shape = shape_of(lowering.value(node.output(i)));
    const std::string name = fmt::format("{}.{}", lowering.name_of(node), i);
    lowering.layouts().set(
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
  if (parts.size() > graph::kMaxConcatInputs)
    refuse(node, "has {} inputs; allowed: at most {}", parts.size(), graph::kMaxConcatInputs);
  const size_t rank = lowering.value(node.output(0)).extents.size();
  int axis = axis_of(node.integer("axis", 0), rank);
  const bool last = std::ranges::all_of(
      parts, [&](int input) { return lowering.layouts().is_channels_last(input); });
  if (last) axis = axis_in_last(axis, rank);
  std::vector<TensorId> inputs;
  for (const int input : parts) inputs.push_back(lowering.layouts().get(input, last));
  set_output(
      lowering, node, ops::concat(lowering.builder(), lowering.name_of(node), inputs, axis), last);
}

// Pads with a constant. Keeps the layout of images.
void lower_pad(Lowering& lowering, const Node& node) {
  if (node.text("mode", "constant") != "constant")
    refuse(node, "mode: value is {}; allowed: constant", node.text("mode", ""));
  const std::vector<int64_t> pads = pads_of(lowering.readers().view(node));
  const auto middle = pads.begin() + static_cast<std::ptrdiff_t>(pads.size() / 2);
  std::vector<int64_t> before(pads.begin(), middle), after(middle, pads.end());
  float fill = node.number("value", 0);
  if (node.input(2) >= 0) {
    const auto given = number_of(lowering.readers().origin(node.input(2)));
    if (!given) refuse(node, "constant_value: is computed; must be a constant");
    fill = *given;
  }
  const bool last = lowering.layouts().is_channels_last(node.input(0));
  if (last) {
    for (std::vector<int64_t>* list : {&before, &after}) to_channels_last(*list);
  }
  const TensorId x = input_of(lowering, node, 0, last);
  set_output(lowering,
             node,
             ops::pad(lowering.builder(), lowering.name_of(node), x, before, after, fill),
             last);
}

constexpr NodeType kNodes[] = {
    {"Concat", rule_concat, lower_concat, evaluate_concat},
    {"Split", rule_split, lower_split, evaluate_split},
    {"Slice", rule_slice, lower_slice, evaluate_slice},
    {"Pad", rule_pad, lower_pad, evaluate_pad},
};

}  // namespace

std::span<const NodeType> slicing_nodes() { return kNodes; }

}  // namespace lockstep::onnx
