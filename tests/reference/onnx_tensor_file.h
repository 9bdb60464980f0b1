#pragma once
// Tensors that lie alone in a file (`input_0.pb` of the test cases of the `onnx` package).

#include <cstdint>
#include <span>
#include <string>

#include "models/onnx/read/parse_file.h"
#include "runtime/base/file.h"

namespace lockstep::onnx {

// Fields of protobuf's wire format: a number below 128, and bytes with their length before them.
inline std::string wire_varint(uint64_t x) {
  std::string bytes;
  for (; x >= 128; x >>= 7) bytes += static_cast<char>(x % 128 + 128);
  return bytes + static_cast<char>(x);
}
inline std::string wire_number(uint64_t field, uint64_t number) {
  return wire_varint(field << 3) + wire_varint(number);
}
inline std::string wire_field(uint64_t field, const std::string& bytes) {
  return wire_varint(field << 3 | 2) + wire_varint(bytes.size()) + bytes;
}

// The tensor, which is read as the value of a Constant in a network of one node. Throws ConfigError
// as parse_file() does.
inline Array read_tensor_file(const std::string& path) {
  const std::string tensor = lockstep::read_file(std::filesystem::path(path), size_t{1} << 30);
  const uint64_t kTensor = 4;
  const std::string attribute =
      wire_field(1, "value") + wire_field(5, tensor) + wire_number(20, kTensor);
  const std::string node =
      wire_field(2, "x") + wire_field(4, "Constant") + wire_field(5, attribute);
  const std::string output = wire_field(1, "x");
  const std::string graph = wire_field(1, node) + wire_field(2, "g") + wire_field(12, output);
  const std::string opset = wire_number(2, 17);
  const std::string model = wire_number(1, 8) + wire_field(7, graph) + wire_field(8, opset);
  const File file = parse_file(std::as_bytes(std::span(model)), path);
  return *file.values[static_cast<size_t>(file.outputs.at(0))].constant;
}

}  // namespace lockstep::onnx
