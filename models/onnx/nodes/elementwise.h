#pragma once
// Evaluators of elementwise ops, made from two functions: one for floating-point numbers (in
// double, rounded to the type) and one for integers (in int64_t, wrapped to the type).

#include <algorithm>
#include <cstdint>
#include <vector>

#include "models/onnx/nodes/node_view.h"
#include "models/onnx/nodes/strided.h"

namespace lockstep::onnx {

// The output has the type and extents of input 0.
std::vector<Form> rule_same(const NodeView& node);
std::vector<Form> rule_float(const NodeView& node);

inline int64_t wrapped_negative(int64_t x) {
  return static_cast<int64_t>(uint64_t{0} - static_cast<uint64_t>(x));
}

// Placeholder for a function that is never called, because the op's rule rejects such types.
constexpr auto none = [](auto x, auto...) { return x; };

// Elements that are computed at a time. This bounds the memory: int64_t and double are wider than
// the types in which arrays are stored.
constexpr int64_t kBlock = 4096;

// Reads elements [begin, begin + count) of the array broadcast to `to`.
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

// Writes elements [begin, begin + count) of `made`.
template <typename Number>
void write_block(const NewArray& made, int64_t begin, int64_t count, const Number* block) {
  by_type(made.array.type, made.data, [&](auto* to) {
    using To = std::decay_t<decltype(*to)>;
    for (int64_t i = 0; i < count; ++i) to[begin + i] = write_element<To>(block[i]);
  });
}

// Computes the output block by block: input 0 is read into `values`, and fill(begin, count, values)
// replaces these by the results.
template <typename Number, typename Fill>
Array by_block(const NodeView& node, const Form& output, const Fill& fill) {
  const NewArray made = make_array(output.type, output.extents);
  std::vector<Number> values(kBlock);
  const int64_t size = made.array.size();
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t count = std::min(kBlock, size - begin);
    read_block(node.array(0), output.extents, begin, count, values.data());
    fill(begin, count, values);
    write_block(made, begin, count, values.data());
  }
  return made.array;
}

// Applies a binary function to all inputs, broadcast to the output:
// f(f(input 0, input 1), input 2) ...
template <typename Number, typename Function>
Array chained(const NodeView& node, const Form& output, const Function& function) {
  std::vector<Number> others(kBlock);
  const auto fill = [&](int64_t begin, int64_t count, std::vector<Number>& values) {
    for (size_t index = 1; index < node.inputs(); ++index) {
      read_block(node.array(index), output.extents, begin, count, others.data());
      for (size_t i = 0; i < static_cast<size_t>(count); ++i)
        values[i] = function(values[i], others[i]);
    }
  };
  return by_block<Number>(node, output, fill);
}

template <typename Numbers, typename Integers>
Array elementwise(const NodeView& node,
                  const Form& output,
                  const Numbers& numbers,
                  const Integers& integers) {
  return is_floating(node.type(0)) ? chained<double>(node, output, numbers)
                                   : chained<int64_t>(node, output, integers);
}

template <auto kNumbers, auto kIntegers = kNumbers>
std::vector<Array> evaluate_all(const NodeView& node, const std::vector<Form>& outputs) {
  return {elementwise(node, outputs[0], kNumbers, kIntegers)};
}

template <typename Number, typename Function>
Array each(const NodeView& node, const Form& output, const Function& function) {
  return by_block<Number>(node, output, [&](int64_t, int64_t, std::vector<Number>& values) {
    for (Number& value : values) value = function(value);
  });
}

template <auto kNumber, auto kInteger = none>
std::vector<Array> evaluate_each(const NodeView& node, const std::vector<Form>& outputs) {
  if (is_floating(node.type(0))) return {each<double>(node, outputs[0], kNumber)};
  return {each<int64_t>(node, outputs[0], kInteger)};
}

}  // namespace lockstep::onnx
