#pragma once
// Element types, extents, and arrays: tensors of an ONNX file whose elements are known.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace lockstep::onnx {

// The supported element types of ONNX. read_file() rejects the others.
enum class ElementType : uint8_t {
  kFloat,
  kDouble,
  kFloat16,
  kBfloat16,
  kInt8,
  kUint8,
  kInt16,
  kUint16,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kBool,
  kString,  // only for values that the network does not use
};

// Bytes of an element; 0 for a string.
size_t size_of(ElementType type);
// ONNX's name of the type: "float", "int64", "bool".
const char* name_of(ElementType type);
bool is_floating(ElementType type);
bool is_integer(ElementType type);  // bool is none

using Extents = std::vector<int64_t>;

// Product of the extents; 1 for a scalar.
int64_t elements(const Extents& extents);
// "(2, 3)".
std::string to_string(const Extents& extents);

// A tensor whose elements are known: row-major, in the host's byte order. The elements are
// immutable, and copies share them. They may be part of a mapped file, which stays open as long as
// they live.
struct Array {
  ElementType type = ElementType::kFloat;
  Extents extents;
  std::shared_ptr<const std::byte> data;  // elements(extents) * size_of(type) bytes

  int64_t size() const { return elements(extents); }
  size_t bytes() const { return static_cast<size_t>(size()) * size_of(type); }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data.get());
  }
  // All elements, converted as by a C++ cast; bool becomes 0 or 1.
  std::vector<int64_t> as_int64() const;
  std::vector<double> as_double() const;
  std::vector<float> as_float() const;
};

// first, first + 1, ...
template <typename Number>
std::vector<Number> numbers_from(size_t count, Number first = 0) {
  std::vector<Number> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

// A new array whose elements are uninitialised, and the pointer for writing them.
struct NewArray {
  Array array;
  std::byte* data;
};
NewArray make_array(ElementType type, Extents extents);
// Makes an array of the values, converted to `type`.
Array array_of(ElementType type, Extents extents, const std::vector<double>& values);
Array array_of_int64(Extents extents, const std::vector<int64_t>& values);

// Makes an array (N) int64.
Array list_of(const std::vector<int64_t>& values);

}  // namespace lockstep::onnx
