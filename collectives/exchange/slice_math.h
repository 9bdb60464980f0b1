#pragma once
// What a reduction needs from other layers: sums of slices, computed by the backend that owns their
// memory, and the communicators of a rank.

#include <cstddef>
#include <cstdint>

#include "collectives/communicator.h"
#include "collectives/exchange/slice_memory.h"
#include "collectives/layout/row_layout.h"
#include "collectives/layout/tree_sum_terms.h"
#include "collectives/shm/node_memory.h"
#include "runtime/base/dtype.h"
#include "runtime/base/exact_sum.h"

namespace lockstep::collectives {

// Sums of slices, computed by the backend that owns their memory.
class SliceMath : public SliceMemory {
 public:
  // out = the sum of terms, arrays of n elements each. If they are floats, out may be one of them.
  virtual void tree_sum(const TreeSumTerms& terms, float* out, int64_t n) = 0;
  // to = n floats, rounded to `wire`: kBF16 or kF16.
  virtual void pack(const float* from, DType wire, std::byte* to, int64_t n) = 0;
  // Adds the rows to elements [begin, end) of a table, which lie at `to`. Each of the two is a
  // multiple of kSquaresChunk or an end of the table.
  virtual void add_rows(const AddedRows& rows, int64_t begin, int64_t end, float* to) = 0;
  // *sum += the squares of n floats, in chunks counted from x. If `bits` is not null, *bits +=
  // their bit checksum. Both lie in memory from allocate_host().
  virtual void add_squares(const float* x, int64_t n, ExactSum* sum, uint32_t* bits = nullptr) = 0;
  // *bits, in memory from allocate_host(), += the checksum of n elements of 16 or 32 bits: see
  // runtime/base/bit_checksum.h.
  virtual void add_bits(const std::byte* x, DType dtype, int64_t n, uint32_t* bits) = 0;
};

// Gradients and parameters lie in the backend's memory and travel over `slices`; the few numbers
// that end a step lie in the host's memory and travel over `control`.
struct RankCommunicators {
  Communicator& slices;
  Communicator& control;
  // Set if the topology shares memory; then all gradients are in its own(), and the parameters to
  // gather in its common().
  NodeMemory* node = nullptr;
};

}  // namespace lockstep::collectives
