#pragma once
// Where a rank's gradients lie while they are summed.

#include <cstdint>
#include <vector>

#include "collectives/layout/sharding.h"

namespace lockstep::collectives {

struct GradientBuffers {
  float* data =
      nullptr;  // buffers of `elements` floats, borrowed; as many as LaneShares::buffers()
  int64_t elements = 0;
  std::vector<Range> buckets;
  // The first so many buckets hold gradients. Later ones are summed too, but are neither rounded
  // nor counted in the norm.
  size_t gradient_buckets = ~size_t{0};
  // For buckets that share the memory of the only buffer: the offset of each in it, and the gaps to
  // fill with zeros before a lane writes it. Empty: buffers are flat.
  std::vector<int64_t> offsets = {};
  std::vector<std::vector<Range>> gaps = {};

  const Range& range(int bucket) const { return buckets[static_cast<size_t>(bucket)]; }
  bool has_gradients(int bucket) const { return static_cast<size_t>(bucket) < gradient_buckets; }
  float* buffer(int number) const { return data + number * elements; }
  // The address of element `flat` of a bucket in a buffer.
  float* at(float* buffer, int bucket, int64_t flat) const {
    if (offsets.empty()) return buffer + flat;
    return buffer + offsets[static_cast<size_t>(bucket)] + flat - range(bucket).begin;
  }
  // Whether two buckets share memory.
  bool overlap(int bucket, int other) const {
    const int64_t a = offsets[static_cast<size_t>(bucket)], b = offsets[static_cast<size_t>(other)];
    return a < b + range(other).size() && b < a + range(bucket).size();
  }
};

}  // namespace lockstep::collectives
