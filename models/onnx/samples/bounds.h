#pragma once
// Bounds for each element of a value, as far as they are known at bind time. Used for indices that
// a network computes.

#include <cstdint>
#include <vector>

#include "models/onnx/network.h"

namespace lockstep::onnx {

struct Bounds {
  // For each element, row-major. Empty if nothing is known.
  std::vector<double> min, max;

  bool known() const { return !min.empty(); }
};

Bounds bounds_of(const Network& network, int value);

}  // namespace lockstep::onnx
