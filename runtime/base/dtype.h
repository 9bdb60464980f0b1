#pragma once
// Element types of tensors.

#include <cstddef>
#include <cstdint>

namespace lockstep {

enum class DType : uint8_t { kF32, kF64, kBF16, kF16, kI32, kU8 };

// Bytes of one element.
constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 8;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kBF16:
    case DType::kF16: return 2;
    case DType::kU8: return 1;
  }
  return 0;
}

// The name that safetensors uses: "F32", "BF16", ...
constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "F64";
    case DType::kF32: return "F32";
    case DType::kI32: return "I32";
    case DType::kBF16: return "BF16";
    case DType::kF16: return "F16";
    case DType::kU8: return "U8";
  }
  return "?";
}

}  // namespace lockstep
