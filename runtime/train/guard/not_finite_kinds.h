#pragma once
// What of a tensor is not finite. Infinities may be meant, as masks have them; NaN never is.

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
  // Those that `known` has not.
  NotFiniteKinds without(const NotFiniteKinds& known) const;
};

// The kinds among elements of type f32, bf16 or f16, in the host's memory.
NotFiniteKinds kinds_of(std::span<const std::byte> elements, DType dtype);

// Infinities that the op itself writes, as its constants are.
NotFiniteKinds kinds_of_constants(const Op& op);

}  // namespace lockstep
