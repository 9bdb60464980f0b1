#pragma once
// Kinds of numbers in a tensor that are not finite. Infinities may be intended, as in masks; NaN
// never is.

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/dtype.h"
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

// The kinds among elements of type f32, bf16 or f16 in host memory.
NotFiniteKinds kinds_of(std::span<const std::byte> elements, DType dtype);

// Infinities that the op itself writes, such as its constants.
NotFiniteKinds kinds_of_constants(const Op& op);

}  // namespace lockstep
