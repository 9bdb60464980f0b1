#include "models/onnx/nodes/node_view.h"

#include <algorithm>

#include "models/onnx/read/tensors.h"

namespace lockstep::onnx {

const Value& NodeView::input(size_t index) const {
  const int number = node_.input(index);
  if (number < 0) refuse("lacks its input {}", index);
  return values_[static_cast<size_t>(number)];
}

bool NodeView::known(size_t index) const {
  return has(index) && input(index).kind == ValueKind::kConstant;
}

const Array& NodeView::array(size_t index) const {
  const Value& value = input(index);
  if (value.kind != ValueKind::kConstant)
    refuse(
        "its input {} (\"{}\") determines extents but depends on data or parameters; must be known "
        "before training starts",
        index,
        value.name);
  return value.array;
}

int64_t NodeView::known_integer(size_t index) const {
  const Array& values = array(index);
  if (values.size() != 1)
    refuse("its input {} has extents {}; must be one number", index, to_string(values.extents));
  return values.as_int64()[0];
}

double NodeView::known_number(size_t index) const {
  const Array& values = array(index);
  if (values.size() != 1)
    refuse("its input {} has extents {}; must be one number", index, to_string(values.extents));
  return values.as_double()[0];
}

std::optional<std::vector<int64_t>> NodeView::list(const std::string& attribute,
                                                   size_t index) const {
  if (node_.has(attribute)) return node_.integers(attribute);
  if (!has(index)) return std::nullopt;
  require_integers(index);
  return known_integers(index);
}

int64_t NodeView::integer(const std::string& attribute,
                          int64_t otherwise,
                          int64_t min,
                          int64_t max) const {
  const int64_t value = node_.integer(attribute, otherwise);
  if (value < min || value > max)
    refuse("attribute {} is {}; must be within {} and {}", attribute, value, min, max);
  return value;
}

std::vector<int64_t> NodeView::integers(
    const std::string& attribute, size_t count, int64_t otherwise, int64_t min, int64_t max) const {
  std::vector<int64_t> values = node_.integers(attribute);
  if (values.empty()) values.assign(count, otherwise);
  if (values.size() != count)
    refuse("attribute {} has {} numbers; must have {}", attribute, values.size(), count);
  for (const int64_t value : values)
    if (value < min || value > max)
      refuse("attribute {} has {}; must be within {} and {}", attribute, value, min, max);
  return values;
}

size_t NodeView::axis(int64_t axis, int64_t rank) const {
  if (axis < -rank || axis >= rank)
    refuse(
        "axis {} of a value with {} axes; must be within {} and {}", axis, rank, -rank, rank - 1);
  return static_cast<size_t>(axis < 0 ? axis + rank : axis);
}

std::vector<size_t> NodeView::axes(const std::vector<int64_t>& axes, int64_t rank) const {
  std::vector<size_t> result;
  for (const int64_t number : axes) {
    const size_t index = axis(number, rank);
    if (std::ranges::find(result, index) != result.end()) refuse("axis {} is named twice", number);
    result.push_back(index);
  }
  return result;
}

void NodeView::require_rank(size_t index, int64_t min, int64_t max) const {
  if (rank(index) < min || rank(index) > max)
    refuse("its input {} has extents {}; must have {} axes",
           index,
           to_string(extents(index)),
           min == max ? fmt::format("{}", min) : fmt::format("{} to {}", min, max));
}

void NodeView::require_floating(size_t index) const {
  if (!is_floating(type(index)))
    refuse("its input {} is of type {}; must be floating-point", index, name_of(type(index)));
}

void NodeView::require_integers(size_t index) const {
  if (type(index) != ElementType::kInt64 && type(index) != ElementType::kInt32)
    refuse("its input {} is of type {}; must be int64 or int32", index, name_of(type(index)));
}

void NodeView::require_extents(size_t index, const Extents& expected) const {
  if (extents(index) != expected)
    refuse("its input {} has extents {}; must have {}",
           index,
           to_string(extents(index)),
           to_string(expected));
}

void NodeView::require_type(size_t index, ElementType expected) const {
  if (type(index) != expected)
    refuse(
        "its input {} is of type {}; must be {}", index, name_of(type(index)), name_of(expected));
}

void NodeView::require_same_type(size_t first, size_t second) const {
  if (type(first) != type(second))
    refuse("its inputs {} and {} have types {} and {}; must have the same type",
           first,
           second,
           name_of(type(first)),
           name_of(type(second)));
}

void NodeView::require_inputs(size_t min, size_t max) const {
  if (inputs() > max) refuse("has {} inputs; must have at most {}", inputs(), max);
  for (size_t index = 0; index < min; ++index) input(index);
}

Extents broadcast(const NodeView& node, const Extents& first, const Extents& second) {
  const Extents& more_axes = first.size() >= second.size() ? first : second;
  const Extents& fewer_axes = first.size() >= second.size() ? second : first;
  Extents result = more_axes;
  const size_t shift = more_axes.size() - fewer_axes.size();
  for (size_t i = 0; i < fewer_axes.size(); ++i) {
    int64_t& extent = result[shift + i];
    if (extent == fewer_axes[i] || fewer_axes[i] == 1) continue;
    if (extent != 1)
      node.refuse("extents {} and {} cannot be broadcast: must be equal or 1 from the last axis on",
                  to_string(first),
                  to_string(second));
    extent = fewer_axes[i];
  }
  return result;
}

std::optional<int64_t> elements_within_limit(const Extents& extents) {
  int64_t count = 1;
  bool empty = false;
  for (const int64_t extent : extents) {
    empty |= extent == 0;
    if (extent == 0) continue;
    if (extent > kMaxElements / count) return std::nullopt;
    count *= extent;
  }
  return empty ? 0 : count;
}

int64_t checked_elements(const NodeView& node, const Extents& extents) {
  for (const int64_t extent : extents)
    if (extent < 0) node.refuse("extents {}; none may be below 0", to_string(extents));
  const std::optional<int64_t> count = elements_within_limit(extents);
  if (!count) node.refuse("extents {}; a value may have at most 2^46 elements", to_string(extents));
  return *count;
}

int64_t product(const Extents& extents, size_t begin, size_t end) {
  int64_t count = 1;
  for (size_t i = begin; i < end; ++i) count *= extents[i];
  return count;
}

ElementType type_of_attribute(const NodeView& node,
                              const std::string& attribute,
                              ElementType otherwise) {
  if (!node.node().has(attribute)) return otherwise;
  const int64_t number = node.node().integer(attribute, 0);
  const auto type = element_type_of(number);
  if (type && *type != ElementType::kString) return *type;
  node.refuse(
      "attribute {} is {}; must be 1 (float), 2 (uint8), 3 (int8), 4 (uint16), 5 (int16), 6 "
      "(int32), 7 (int64), 9 (bool), 10 (float16), 11 (double), 12 (uint32), 13 (uint64) or 16 "
      "(bfloat16)",
      attribute,
      number);
}

}  // namespace lockstep::onnx
