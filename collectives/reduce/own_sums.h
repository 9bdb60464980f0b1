#pragma once
// The sums of this rank's parts of the buckets: where they lie, their squares and their checksums.

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/exchange/slice_math.h"
#include "collectives/reduce/gradient_buffers.h"
#include "runtime/base/exact_sum.h"

namespace lockstep::collectives {

// What is computed from the sums.
struct SumMeasures {
  bool norm = true;  // false: no squares
  // Increasing offsets of the tensors in the flat buffer, each at the start of a chunk of squares
  // (exact_sum.h); for checksums by tensor. Empty: no checksums.
  std::vector<int64_t> tensor_begins = {};
};

class OwnSums {
 public:
  // Part `part` of `parts` of each bucket. `place`: for the sums; its data null: in the first
  // gradient buffer. If packed, it has as many buffers as the schedule of sums needs.
  OwnSums(SliceMath& math,
          const GradientBuffers& gradients,
          int part,
          int parts,
          OwnedFloats place,
          const SumMeasures& measures);

  const OwnedFloats& place() const { return place_; }
  Range part(int bucket) const { return part_of(gradients_.range(bucket), part_, parts_); }
  // The address of a bucket's sum, in a buffer of packed sums.
  float* at(int bucket, int buffer = 0) const;

  void begin_step();
  // Called right after a bucket is summed, while it is still in cache.
  void measure(int bucket);
  const ExactSum& squares() const { return *squares_; }
  std::span<const uint32_t> checksums() const { return checksums_; }

 private:
  SliceMath& math_;
  const GradientBuffers& gradients_;
  int part_, parts_;
  OwnedFloats place_;
  bool norm_;
  ExactSum* squares_;                       // of my parts in this step, in allocate_host() memory
  std::vector<std::vector<Range>> pieces_;  // of each bucket: ranges with a checksum each
  std::vector<size_t> first_piece_;         // of each bucket, among all pieces
  std::span<uint32_t> checksums_;           // of all pieces
};

}  // namespace lockstep::collectives
