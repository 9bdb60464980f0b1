#pragma once
// The device memory that the backend uses beside the rows of the plan, in one piece.

#include <cstddef>

#include "runtime/cuda/flat/bit_sum.h"
#include "runtime/cuda/flat/content_hash.h"
#include "runtime/cuda/flat/optimizers.h"
#include "runtime/cuda/flat/squares.h"
#include "runtime/cuda/matmul/matmul.h"
#include "runtime/exec/optimizers/list.h"
#include "runtime/graph/lane_context.h"

namespace lockstep::cuda {

inline constexpr size_t kMostUpdateGroups = 8192;  // one a tensor for LARS and LAMB
inline constexpr size_t kMostSlices = 4096;        // updated by one launch

struct Workspace {
  std::byte matmul[Matmul::kWorkspaceBytes];  // first: aligned as the whole is
  ExactSum squares[kSquaresBlocks];
  ContentHash hashes[kHashBlocks];
  uint32_t bit_sums[kBitSumBlocks];
  LaneContext lane;
  MomentRounding rounding;
  PlacedSlice slices[kMostSlices];
  alignas(alignof(OptimizerUpdate)) std::byte updates[kMostUpdateGroups * sizeof(OptimizerUpdate)];
};
inline constexpr size_t kWorkspaceBytes = (sizeof(Workspace) + 255) / 256 * 256;

}  // namespace lockstep::cuda
