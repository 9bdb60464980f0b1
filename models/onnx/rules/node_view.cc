#include "models/onnx/rules/node_view.h"

#include <algorithm>

namespace lockstep::onnx {

void NodeView::refuse_saying(const std::string& what) const {
  throw ConfigError("{}: {}", node_.description(), what);
}

const Value& NodeView::input(size_t place) const {
  const int number = node_.input(place);
  if (number < 0) refuse("lacks its input {}", place);
  return values_[static_cast<size_t>(number)];
}

bool NodeView::known(size_t place) const {
  return has(place) && input(place).kind == ValueKind::kConstant;
}

const Array& NodeView::array(size_t place) const {
  const Value& value = input(place);
  if (value.kind != ValueKind::kConstant)
    refuse(
        "its input {} (\"{}\") decides extents and depends on data or parameters; must be known "
        "before the start",
        place,
        value.name);
  return value.array;
}

int64_t NodeView::known_integer(size_t place) const {
  const Array& values = array(place);
  if (values.size() != 1)
    refuse("its input {} has extents {}; must be one number", place, to_string(values.extents));
  return values.as_int64()[0];
}

double NodeView::known_number(size_t place) const {
  const Array& values = array(place);
  if (values.size() != 1)
    refuse("its input {} has extents {}; must be one number", place, to_string(values.extents));
  return values.as_double()[0];
}

std::optional<std::vector<int64_t>> NodeView::list(const std::string& attribute,
                                                   size_t place) const {
  if (node_.has(attribute)) return node_.integers(attribute);
  if (!has(place)) return std::nullopt;
  require_integers(place);
  return known_integers(place);
}

int64_t NodeView::integer(const std::string& attribute,
                          int64_t otherwise,
                          int64_t least,
                          int64_t most) const {
  const int64_t value = node_.integer(attribute, otherwise);
  if (value < least || value > most)
    refuse("attribute {} is {}; must be within {} and {}", attribute, value, least, most);
  return value;
}

std::vector<int64_t> NodeView::integers(const std::string& attribute,
                                        size_t count,
                                        int64_t otherwise,
                                        int64_t least,
                                        int64_t most) const {
  std::vector<int64_t> values = node_.integers(attribute);
  if (values.empty()) values.assign(count, otherwise);
  if (values.size() != count)
    refuse("attribute {} has {} numbers; must have {}", attribute, values.size(), count);
  for (const int64_t value : values)
    if (value < least || value > most)
      refuse("attribute {} has {}; must be within {} and {}", attribute, value, least, most);
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
    const size_t place = axis(number, rank);
    if (std::find(result.begin(), result.end(), place) != result.end())
      refuse("axis {} is named twice", number);
    result.push_back(place);
  }
  return result;
}

void NodeView::require_rank(size_t place, int64_t least, int64_t most) const {
  if (rank(place) < least || rank(place) > most)
    refuse("its input {} has extents {}; must have {} axes",
           place,
           to_string(extents(place)),
           least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most));
}

void NodeView::require_floating(size_t place) const {
  if (!is_floating(type(place)))
    refuse("its input {} is of type {}; must be floating-point", place, name_of(type(place)));
}

void NodeView::require_integers(size_t place) const {
  if (type(place) != ElementType::kInt64 && type(place) != ElementType::kInt32)
    refuse("its input {} is of type {}; must be int64 or int32", place, name_of(type(place)));
}

void NodeView::require_type(size_t place, ElementType expected) const {
  if (type(place) != expected)
    refuse(
        "its input {} is of type {}; must be {}", place, name_of(type(place)), name_of(expected));
}

void NodeView::require_same_type(size_t first, size_t second) const {
  if (type(first) != type(second))
    refuse("its inputs {} and {} are of types {} and {}; must be of one",
           first,
           second,
           name_of(type(first)),
           name_of(type(second)));
}

void NodeView::require_inputs(size_t least, size_t most) const {
  if (inputs() > most) refuse("has {} inputs; must have at most {}", inputs(), most);
  for (size_t place = 0; place < least; ++place) input(place);
}

Extents broadcast(const NodeView& node, const Extents& first, const Extents& second) {
  const Extents& longer = first.size() >= second.size() ? first : second;
  const Extents& shorter = first.size() >= second.size() ? second : first;
  Extents result = longer;
  const size_t shift = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    int64_t& extent = result[shift + i];
    if (extent == shorter[i] || shorter[i] == 1) continue;
    if (extent != 1)
      node.refuse("extents {} and {} do not go together: must be equal or 1 from the last axis on",
                  to_string(first),
                  to_string(second));
    extent = shorter[i];
  }
  return result;
}

std::optional<int64_t> elements_within_limit(const Extents& extents) {
  int64_t count = 1;
  bool empty = false;
  for (const int64_t extent : extents) {
    empty |= extent == 0;
    if (extent == 0) continue;
    if (extent > kMostElements / count) return std::nullopt;
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

}  // namespace lockstep::onnx
