#pragma once
// Interval arithmetic: bounds for the elements of a value.

#include <cstdint>
#include <map>
#include <optional>

#include "models/onnx/network.h"

namespace lockstep::onnx {

struct Range {
  double min = 0, max = 0;
  // Whether it comes from a cumulative sum, like positions that are counted over tokens. Then
  // samples exist that reach the end of the range.
  bool counts = false;
};

// The range of the elements of `value`, if it is known. `limits` maps inputs to their limits: their
// elements are in [0, limit).
std::optional<Range> range_of(const Network& network,
                              int value,
                              const std::map<int, int64_t>& limits);

}  // namespace lockstep::onnx
