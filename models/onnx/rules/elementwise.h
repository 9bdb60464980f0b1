#pragma once
// Evaluators of ops that compute each element by itself, made from two functions: of numbers (in double,
// rounded to the type) and of integers (in int64_t, wrapped to the type).

#include <cstdint>
#include <vector>

#include "models/onnx/rules/node_view.h"
#include "models/onnx/rules/strided.h"

namespace lockstep::onnx {

// The output is as input 0.
std::vector<Form> rule_same(const NodeView& node);
std::vector<Form> rule_same_floating(const NodeView& node);

inline int64_t wrapped_negative(int64_t x) {
  return static_cast<int64_t>(uint64_t{0} - static_cast<uint64_t>(x));
}

// In the place of a function of integers: the op takes none (its rule says so).
constexpr auto none = [](auto x, auto...) { return x; };

// The inputs broadcast to the output, one after the other: f(f(input 0, input 1), input 2) ...
template <typename Number, typename Function>
Array chained(const NodeView& node, const Form& output, const Function& function) {
  std::vector<Number> values = elements_as<Number>(broadcast_to(node.array(0), output.extents));
  for (size_t place = 1; place < node.inputs(); ++place) {
    const Array array = broadcast_to(node.array(place), output.extents);
    const std::vector<Number> others = elements_as<Number>(array);
    for (size_t i = 0; i < values.size(); ++i) values[i] = function(values[i], others[i]);
  }
  return array_from(output.type, output.extents, values);
}

template <typename Numbers, typename Integers>
Array elementwise(const NodeView& node,
                  const Form& output,
                  const Numbers& numbers,
                  const Integers& integers) {
  return is_floating(node.type(0)) ? chained<double>(node, output, numbers)
                                   : chained<int64_t>(node, output, integers);
}

template <auto kNumbers, auto kIntegers>
std::vector<Array> evaluate_all(const NodeView& node, const std::vector<Form>& outputs) {
  return {elementwise(node, outputs[0], kNumbers, kIntegers)};
}

template <typename Number, typename Function>
Array each(const NodeView& node, const Form& output, const Function& function) {
  std::vector<Number> values = elements_as<Number>(node.array(0));
  for (Number& value : values) value = function(value);
  return array_from(output.type, output.extents, values);
}

template <auto kNumber, auto kInteger = none>
std::vector<Array> evaluate_each(const NodeView& node, const std::vector<Form>& outputs) {
  if (is_floating(node.type(0))) return {each<double>(node, outputs[0], kNumber)};
  return {each<int64_t>(node, outputs[0], kInteger)};
}

}  // namespace lockstep::onnx
