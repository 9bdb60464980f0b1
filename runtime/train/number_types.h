#pragma once
// The C++ types of numbers in a backend's memory.

#include <cstddef>
#include <span>
#include <type_traits>

#include "runtime/base/check.h"
#include "runtime/base/dtype.h"
#include "runtime/base/half.h"

namespace lockstep::train {

// Returns f(numbers), with `numbers` as a pointer to its type: f32, bf16 or f16.
template <typename Byte, typename F>
decltype(auto) with_numbers(Byte* numbers, DType dtype, F f) {
  const auto as = [&]<typename T>(T) -> decltype(auto) {
    return f(reinterpret_cast<std::conditional_t<std::is_const_v<Byte>, const T, T>*>(numbers));
  };
  if (dtype == DType::kBF16) return as(BFloat16());
  if (dtype == DType::kF16) return as(Float16());
  LOCKSTEP_CHECK(dtype == DType::kF32, "numbers of another type ");
  return as(0.0f);
}

// Rounds `from` to numbers of this type.
void round_numbers(std::span<const float> from, DType dtype, std::byte* to);

// The reverse of round_numbers().
void widen_numbers(const std::byte* from, DType dtype, std::span<float> to);

}  // namespace lockstep::train
