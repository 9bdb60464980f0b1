#pragma once
// Evaluators of ops that compute each element by itself, made from two functions: of numbers (in double,
// rounded to the type) and of integers (in int64_t, wrapped to the type).

#include <algorithm>
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

// Elements that are computed at once: in int64_t or double they are wider than masks are stored.
constexpr int64_t kBlock = 4096;

// Elements [begin, begin + count) of the array broadcast to `to`.
template <typename Number>
void read_block(
    const Array& array, const Extents& to, int64_t begin, int64_t count, Number* block) {
  const std::vector<int64_t> strides = broadcast_strides(array.extents, to);
  by_type(array.type, array.data.get(), [&](const auto* from) {
    for_each_offset(to, strides, 0, begin, count, [&](int64_t offset) {
      *block++ = read_element<Number>(from[offset]);
    });
  });
}

// Elements [begin, begin + count) of what is made.
template <typename Number>
void write_block(const NewArray& made, int64_t begin, int64_t count, const Number* block) {
  by_type(made.array.type, made.data, [&](auto* to) {
    using To = std::decay_t<decltype(*to)>;
    for (int64_t i = 0; i < count; ++i) to[begin + i] = write_element<To>(block[i]);
  });
}

// The inputs broadcast to the output, one after the other: f(f(input 0, input 1), input 2) ...
template <typename Number, typename Function>
Array chained(const NodeView& node, const Form& output, const Function& function) {
  const NewArray made = make_array(output.type, output.extents);
  std::vector<Number> values(kBlock);
  std::vector<Number> others(kBlock);
  const int64_t size = made.array.size();
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t count = std::min(kBlock, size - begin);
    read_block(node.array(0), output.extents, begin, count, values.data());
    for (size_t place = 1; place < node.inputs(); ++place) {
      read_block(node.array(place), output.extents, begin, count, others.data());
      for (size_t i = 0; i < static_cast<size_t>(count); ++i)
        values[i] = function(values[i], others[i]);
    }
    write_block(made, begin, count, values.data());
  }
  return made.array;
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
  const NewArray made = make_array(output.type, output.extents);
  std::vector<Number> values(kBlock);
  const int64_t size = made.array.size();
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t count = std::min(kBlock, size - begin);
    read_block(node.array(0), output.extents, begin, count, values.data());
    for (Number& value : values) value = function(value);
    write_block(made, begin, count, values.data());
  }
  return made.array;
}

template <auto kNumber, auto kInteger = none>
std::vector<Array> evaluate_each(const NodeView& node, const std::vector<Form>& outputs) {
  if (is_floating(node.type(0))) return {each<double>(node, outputs[0], kNumber)};
  return {each<int64_t>(node, outputs[0], kInteger)};
}

}  // namespace lockstep::onnx
