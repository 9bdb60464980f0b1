#include "models/onnx/nodes/types.h"

namespace lockstep::onnx {
namespace {

// ONNX's numbers of types: TensorProto.DataType.
struct Numbered {
  int64_t number;
  ElementType type;
};

constexpr Numbered kTypes[] = {
    {1, ElementType::kFloat},
    {2, ElementType::kUint8},
    {3, ElementType::kInt8},
    {4, ElementType::kUint16},
    {5, ElementType::kInt16},
    {6, ElementType::kInt32},
    {7, ElementType::kInt64},
    {9, ElementType::kBool},
    {10, ElementType::kFloat16},
    {11, ElementType::kDouble},
    {12, ElementType::kUint32},
    {13, ElementType::kUint64},
    {16, ElementType::kBfloat16},
};

}  // namespace

ElementType type_of_attribute(const NodeView& node,
                              const std::string& attribute,
                              ElementType otherwise) {
  if (!node.node().has(attribute)) return otherwise;
  const int64_t number = node.node().integer(attribute, 0);
  for (const Numbered& known : kTypes)
    if (known.number == number) return known.type;
  node.refuse(
      "attribute {} is {}; must be 1 (float), 2 (uint8), 3 (int8), 4 (uint16), 5 (int16), 6 "
      "(int32), 7 (int64), 9 (bool), 10 (float16), 11 (double), 12 (uint32), 13 (uint64) or 16 "
      "(bfloat16)",
      attribute,
      number);
}

}  // namespace lockstep::onnx
