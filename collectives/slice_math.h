#pragma once
// What a reduction needs of others: sums of slices, by the backend in whose memory they lie, and
// the communicators of a rank.

#include <cstddef>
#include <cstdint>

#include "collectives/communicator.h"
#include "collectives/reduce/tree_sum_terms.h"
#include "collectives/shm/node_memory.h"
#include "collectives/slice_memory.h"
#include "runtime/base/dtype.h"
#include "runtime/base/exact_sum.h"

namespace lockstep {

// Sums of slices that lie in the memory, done by the backend that owns it.
class SliceMath : public SliceMemory {
 public:
  // out = the sum of terms of n numbers each; out may be one of their arrays, where they are
  // floats.
  virtual void tree_sum(const TreeSumTerms& terms, float* out, int64_t n) = 0;
  // to = n floats, rounded to `wire`: kBF16 or kF16.
  virtual void pack(const float* from, DType wire, std::byte* to, int64_t n) = 0;
  // *sum, in memory of allocate_host(), += the squares of n floats, in chunks from the first on;
  // and, unless it is null, *bits, in such memory, += the sum of their bits.
  virtual void add_squares(const float* x, int64_t n, ExactSum* sum, uint32_t* bits = nullptr) = 0;
  // *bits, in memory of allocate_host(), += the sum of the bits of n elements of a type of 16 or 32
  // bits: see runtime/base/bit_sum.h.
  virtual void add_bits(const std::byte* x, DType dtype, int64_t n, uint32_t* bits) = 0;
};

// Gradients and parameters lie in the backend's memory, the few numbers that a step ends with in
// the host's.
struct RankCommunicators {
  Communicator& slices;
  Communicator& control;
  NodeMemory* node = nullptr;  // where the topology shares memory: all gradients are its own(),
                               // and the parameters to gather its common()
};

}  // namespace lockstep
