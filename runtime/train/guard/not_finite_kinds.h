#pragma once
// Kinds of numbers in a tensor that are not finite. Infinities may be intended, as in masks; NaN
// never is.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "runtime/base/dtype.h"
#include "runtime/base/half.h"
#include "runtime/graph/graph.h"

namespace lockstep {

struct NotFiniteKinds {
  bool nan = false, infinity = false, negative_infinity = false;

  bool any() const { return nan || infinity || negative_infinity; }
  bool only_negative() const { return negative_infinity && !nan && !infinity; }
  void add(const NotFiniteKinds& other);
  // The kinds that `known` does not have.
  NotFiniteKinds without(const NotFiniteKinds& known) const;
};

// Calls f with each element, in host memory, of type f32, f64, bf16 or f16.
template <typename F>
void for_each_number(std::span<const std::byte> elements, DType dtype, F&& f) {
  const auto each = [&]<typename T>(T x) {
    for (size_t at = 0; at + sizeof(T) <= elements.size(); at += sizeof(T)) {
      std::memcpy(&x, elements.data() + at, sizeof(T));
      if constexpr (std::is_same_v<T, double>)
        f(x);
      else
        f(static_cast<double>(to_float(x)));
    }
  };
  if (dtype == DType::kBF16) return each(BFloat16{});
  if (dtype == DType::kF16) return each(Float16{});
  if (dtype == DType::kF64) return each(0.0);
  each(0.0f);
}

// The kinds among such elements.
NotFiniteKinds kinds_of(std::span<const std::byte> elements, DType dtype);

// Infinities that the op itself writes, such as its constants.
NotFiniteKinds kinds_of_constants(const Op& op);

}  // namespace lockstep
