#pragma once
// Values of an ONNX file that are known before the start.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::onnx {

// The element types of ONNX that networks here may have; the others are refused where a file is read.
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
  kString,  // only as what a network ignores
};

// Bytes of an element; 0 of a string.
size_t size_of(ElementType type);
// As ONNX writes it: "float", "int64", "bool".
const char* name_of(ElementType type);
bool is_floating(ElementType type);

using Extents = std::vector<int64_t>;

// Product of the extents; 1 of a scalar.
int64_t elements(const Extents& extents);
// "(2, 3)".
std::string to_string(const Extents& extents);

// A tensor whose elements are known: row-major, in the host's byte order. Its elements never change
// and are shared by copies; they may lie in a mapped file, which they then keep open.
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
  // All elements in another type: integers and truth values (bool: 0 or 1) as int64, numbers as double or
  // float. Rounds as a cast does.
  std::vector<int64_t> as_int64() const;
  std::vector<double> as_double() const;
  std::vector<float> as_float() const;
};

// An array of `elements(extents)` uninitialised elements, and where to write them.
struct NewArray {
  Array array;
  std::byte* data;
};
NewArray make_array(ElementType type, Extents extents);
// Of values, converted to `type`.
Array array_of(ElementType type, Extents extents, const std::vector<double>& values);
Array array_of_int64(Extents extents, const std::vector<int64_t>& values);

// (N) int64.
Array list_of(const std::vector<int64_t>& values);

}  // namespace lockstep::onnx
