#pragma once
// Between what each index lies that a network computes, as far as it is known before the start.

#include <cstdint>
#include <vector>

#include "models/onnx/network.h"

namespace lockstep::onnx {

struct Bounds {
  // For each element, row-major. Empty: nothing is known.
  std::vector<double> least, most;

  bool known() const { return !least.empty(); }
};

Bounds bounds_of(const Network& network, int value);

}  // namespace lockstep::onnx
