// Ops that make values from attributes, extents and bounds: Constant, Shape, Range ...
#include <algorithm>
#include <cmath>

#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/node_view.h"
#include "models/onnx/nodes/strided.h"

namespace lockstep::onnx {
namespace {

template <typename T>
std::vector<double> doubles(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

Array constant_of(const NodeView& node) {
  const Node& n = node.node();
  if (n.has("value")) {
    if (const Array* array = std::get_if<Array>(&n.attributes.at("value"))) return *array;
    node.refuse("attribute value is not a tensor");
  }
  const ElementType number = ElementType::kFloat;
  if (n.has("value_float")) return array_from<double>(number, {}, {n.number("value_float", 0)});
  if (n.has("value_int")) return array_of_int64({}, {n.integer("value_int", 0)});
  if (n.has("value_floats")) {
    const std::vector<double> values = doubles(n.numbers("value_floats"));
    return array_from(number, {static_cast<int64_t>(values.size())}, values);
  }
  if (n.has("value_ints")) {
    const std::vector<int64_t> values = n.integers("value_ints");
    return array_of_int64({static_cast<int64_t>(values.size())}, values);
  }
  node.refuse("has no attribute value, value_float, value_floats, value_int or value_ints");
}

std::vector<Form> rule_constant(const NodeView& node) {
  const Array array = constant_of(node);
  return {{array.type, array.extents}};
}

std::vector<Array> evaluate_constant(const NodeView& node, const std::vector<Form>&) {
  return {constant_of(node)};
}

Array fill_of(const NodeView& node) {
  const Node& n = node.node();
  if (!n.has("value")) return array_from<double>(ElementType::kFloat, {}, {0});
  const Array* array = std::get_if<Array>(&n.attributes.at("value"));
  if (array == nullptr || array->size() != 1) node.refuse("attribute value must be one number");
  return with_extents(*array, {});
}

std::vector<Form> rule_constant_of_shape(const NodeView& node) {
  node.require_type(0, ElementType::kInt64);
  node.require_rank(0, 1, 1);
  return {{fill_of(node).type, node.known_integers(0)}};
}

std::vector<Array> evaluate_constant_of_shape(const NodeView& node,
                                              const std::vector<Form>& outputs) {
  return {broadcast_to(fill_of(node), outputs[0].extents)};
}

// The extents of the axes [start, end) of the input; by default of all axes.
Extents shape_of(const NodeView& node) {
  const int64_t rank = node.rank(0);
  const auto normalised = [&](const char* name, int64_t otherwise) {
    const int64_t at = node.node().integer(name, otherwise);
    return std::clamp<int64_t>(at < 0 && at >= -rank ? at + rank : at, 0, rank);
  };
  const int64_t start = normalised("start", 0);
  const int64_t end = std::max(start, normalised("end", rank));
  const auto begin = node.extents(0).begin();
  return {begin + start, begin + end};
}

std::vector<Form> rule_shape(const NodeView& node) {
  return {{ElementType::kInt64, {static_cast<int64_t>(shape_of(node).size())}}};
}

std::vector<Array> evaluate_shape(const NodeView& node, const std::vector<Form>& outputs) {
  return {array_of_int64(outputs[0].extents, shape_of(node))};
}

std::vector<Form> rule_size(const NodeView& node) {
  node.input(0);
  return {{ElementType::kInt64, {}}};
}

std::vector<Array> evaluate_size(const NodeView& node, const std::vector<Form>&) {
  return {array_of_int64({}, {elements(node.extents(0))})};
}

int64_t range_length(const NodeView& node) {
  double length = 0;
  if (is_floating(node.type(0))) {
    const double step = node.known_number(2);
    length = std::ceil((node.known_number(1) - node.known_number(0)) / step);
    if (step == 0 || std::isnan(length))
      node.refuse("the step is {}; must be a number other than 0", step);
  } else {
    const int64_t step = node.known_integer(2);
    if (step == 0) node.refuse("the step is 0; must be another number");
    const auto start = static_cast<uint64_t>(node.known_integer(0));
    const auto limit = static_cast<uint64_t>(node.known_integer(1));
    const bool forward = step > 0;
    const auto stride = static_cast<uint64_t>(step);
    const uint64_t distance = forward ? limit - start : start - limit;
    const bool any = forward ? node.known_integer(1) > node.known_integer(0)
                             : node.known_integer(1) < node.known_integer(0);
    if (any)
      length = static_cast<double>((distance - 1) / (forward ? stride : uint64_t{0} - stride) + 1);
  }
  if (length > static_cast<double>(kMaxElements)) node.refuse("{} numbers are too many", length);
  return length > 0 ? static_cast<int64_t>(length) : 0;
}

std::vector<Form> rule_range(const NodeView& node) {
  node.require_inputs(3, 3);
  node.require_same_type(0, 1);
  node.require_same_type(0, 2);
  return {{node.type(0), {range_length(node)}}};
}

std::vector<Array> evaluate_range(const NodeView& node, const std::vector<Form>& outputs) {
  const auto length = static_cast<size_t>(outputs[0].extents[0]);
  if (is_floating(node.type(0))) {
    std::vector<double> values(length);
    const double start = node.known_number(0);
    const double step = node.known_number(2);
    for (size_t i = 0; i < length; ++i) values[i] = start + static_cast<double>(i) * step;
    return {array_from(outputs[0].type, outputs[0].extents, values)};
  }
  std::vector<int64_t> values(length);
  const auto start = static_cast<uint64_t>(node.known_integer(0));
  const auto step = static_cast<uint64_t>(node.known_integer(2));
  for (size_t i = 0; i < length; ++i) values[i] = static_cast<int64_t>(start + i * step);
  return {array_from(outputs[0].type, outputs[0].extents, values)};
}

std::vector<Form> rule_eye_like(const NodeView& node) {
  node.require_rank(0, 2, 2);
  return {{type_of_attribute(node, "dtype", node.type(0)), node.extents(0)}};
}

std::vector<Array> evaluate_eye_like(const NodeView& node, const std::vector<Form>& outputs) {
  const Extents& extents = outputs[0].extents;
  const int64_t shift = node.integer("k", 0);
  std::vector<int64_t> values(static_cast<size_t>(elements(extents)), 0);
  for (int64_t row = 0; row < extents[0]; ++row)
    if (row + shift >= 0 && row + shift < extents[1])
      values[static_cast<size_t>(row * extents[1] + row + shift)] = 1;
  return {array_from(outputs[0].type, extents, values)};
}

constexpr size_t kNone = 0, kFirst = 1;  // how many inputs are read, see Op::read_inputs

constexpr NodeType kNodes[] = {
    {"Constant", rule_constant, {}, evaluate_constant},
    {"ConstantOfShape", rule_constant_of_shape, {}, evaluate_constant_of_shape},
    {"Shape", rule_shape, {}, evaluate_shape, kNone},
    {"Size", rule_size, {}, evaluate_size, kNone},
    {"Range", rule_range, {}, evaluate_range},
    {"EyeLike", rule_eye_like, {}, evaluate_eye_like, kNone},
};

}  // namespace

std::span<const NodeType> creation_nodes() { return kNodes; }

}  // namespace lockstep::onnx
