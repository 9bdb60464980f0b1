#pragma once
// Between what the numbers of a value lie, as far as it is known before the start.

#include <cstdint>
#include <map>
#include <optional>

#include "models/onnx/network.h"

namespace lockstep::onnx {

struct Range {
  double least = 0, most = 0;
  // Whether it comes of counting, as positions do that are computed of tokens: then there are samples that
  // reach the end of the range.
  bool counts = false;
};

// `limits`: elements of these inputs lie in [0, limit).
std::optional<Range> range_of(const Network& network,
                              int value,
                              const std::map<int, int64_t>& limits);

}  // namespace lockstep::onnx
