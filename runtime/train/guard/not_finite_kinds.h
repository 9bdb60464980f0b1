#pragma once
// Kinds of numbers in a tensor that are not finite. Infinities may be intended, as in masks; NaN
// never is.

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "runtime/graph/graph.h"
#include "runtime/train/number_types.h"

namespace lockstep::train {

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
  const auto each = [&]<typename T>(const T* x) {
    for (size_t i = 0; i < elements.size() / sizeof(T); ++i) {
      if constexpr (std::is_same_v<T, double>)
        f(x[i]);
      else
        f(static_cast<double>(to_float(x[i])));
    }
  };
  if (dtype == DType::kF64) return each(reinterpret_cast<const double*>(elements.data()));
  with_numbers(elements.data(), dtype, each);
}

// The kinds among such elements.
NotFiniteKinds kinds_of(std::span<const std::byte> elements, DType dtype);

// Infinities that the op itself writes, such as its constants.
NotFiniteKinds kinds_of_constants(const graph::Op& op);

}  // namespace lockstep::train
