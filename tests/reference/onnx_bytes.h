#pragma once
// ONNX files made by hand, from the numbers of the format's fields.

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace lockstep::testing::onnx_bytes {

inline std::string varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += static_cast<char>(value | 0x80);
  return text + static_cast<char>(value);
}

inline std::string integer(uint32_t field, int64_t value) {
  return varint(field << 3) + varint(static_cast<uint64_t>(value));
}

// A message, a text or packed numbers.
inline std::string bytes(uint32_t field, const std::string& value) {
  return varint(field << 3 | 2) + varint(value.size()) + value;
}

template <typename T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

inline std::string packed(const std::vector<int64_t>& values) {
  std::string text;
  for (const int64_t value : values) text += varint(static_cast<uint64_t>(value));
  return text;
}

inline std::string each(uint32_t field, const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += bytes(field, value);
  return text;
}

enum Type : int {
  kFloat = 1,
  kUint8 = 2,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kHalf = 10
};

// `elements` is a field with them: raw_data is 9, float_data 4, int32_data 5, int64_data 7.
inline std::string tensor(const std::string& name,
                          const std::vector<int64_t>& extents,
                          int type,
                          const std::string& elements) {
  std::string text;
  for (const int64_t extent : extents) text += integer(1, extent);
  return text + integer(2, type) + (name.empty() ? "" : bytes(8, name)) + elements;
}

inline std::string raw_tensor(const std::string& name, const std::vector<float>& values) {
  return tensor(name, {static_cast<int64_t>(values.size())}, kFloat, bytes(9, raw(values)));
}

// Elements beside the file.
inline std::string external(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string text;
  for (const auto& [key, value] : entries) text += bytes(13, bytes(1, key) + bytes(2, value));
  return text + integer(14, 1);
}

inline std::string tensor_attribute(const std::string& name, const std::string& tensor) {
  return bytes(1, name) + bytes(5, tensor) + integer(20, 4);
}

inline std::string integer_attribute(const std::string& name, int64_t value) {
  return bytes(1, name) + integer(3, value) + integer(20, 2);
}

// In a function: the attribute of the call of that name.
inline std::string reference(const std::string& name, const std::string& of_call) {
  return bytes(1, name) + integer(20, 2) + bytes(21, of_call);
}

inline std::string node(const std::string& op,
                        const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs,
                        const std::string& name = "",
                        const std::vector<std::string>& attributes = {},
                        const std::string& domain = "") {
  return each(1, inputs) + each(2, outputs) + (name.empty() ? "" : bytes(3, name)) + bytes(4, op) +
         each(5, attributes) + (domain.empty() ? "" : bytes(7, domain));
}

// A dimension is a number, a name or, where empty, open without one.
inline std::string value_info(const std::string& name,
                              int type,
                              const std::vector<std::string>& extents) {
  std::string shape;
  for (const std::string& extent : extents) {
    const bool number =
        !extent.empty() && extent.find_first_not_of("-0123456789") == std::string::npos;
    shape += bytes(1,
                   number           ? integer(1, std::stoll(extent))
                   : extent.empty() ? ""
                                    : bytes(2, extent));
  }
  return bytes(1, name) + bytes(2, bytes(1, integer(1, type) + bytes(2, shape)));
}

struct Graph {
  std::vector<std::string> nodes;
  std::vector<std::string> initializers = {};
  std::vector<std::string> inputs = {value_info("x", kFloat, {"batch", "2"})};
  std::vector<std::string> outputs = {value_info("y", kFloat, {"batch", "2"})};
  std::vector<std::string> values = {};
  std::string more = {};

  std::string text() const {
    return each(1, nodes) + bytes(2, "graph") + each(5, initializers) + each(11, inputs) +
           each(12, outputs) + each(13, values) + more;
  }
};

inline std::string opset(const std::string& domain, int64_t version) {
  return (domain.empty() ? "" : bytes(1, domain)) + integer(2, version);
}

inline std::string function(const std::string& domain,
                            const std::string& name,
                            const std::vector<std::string>& inputs,
                            const std::vector<std::string>& outputs,
                            const std::vector<std::string>& nodes,
                            const std::string& more = "") {
  return bytes(1, name) + each(4, inputs) + each(5, outputs) + each(7, nodes) +
         bytes(9, opset("", 18)) + bytes(10, domain) + more;
}

inline std::string model(const Graph& graph,
                         int64_t version = 17,
                         const std::vector<std::string>& functions = {}) {
  return integer(1, 8) + bytes(2, "hand") + bytes(3, "1.0") + bytes(7, graph.text()) +
         bytes(8, opset("", version)) + each(25, functions);
}

}  // namespace lockstep::testing::onnx_bytes
