#pragma once
// The device memory that the backend uses in addition to the plan's arrays, in one piece.

#include <cstddef>

#include "runtime/cuda/flat/bit_checksum.h"
#include "runtime/cuda/flat/content_hash.h"
#include "runtime/cuda/flat/optimizers.h"
#include "runtime/cuda/flat/squares.h"
#include "runtime/cuda/matmul/matmul.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/optimizers/list.h"
#include "runtime/graph/lane_context.h"

namespace lockstep::cuda {

inline constexpr size_t kMaxUpdateGroups = 8192;  // one per tensor for LARS and LAMB
inline constexpr size_t kMaxSlices = 4096;        // of one launch

struct Workspace {
  // First, so that it is aligned like the whole workspace.
  std::byte matmul[Matmul::kWorkspaceBytes];
  ExactSum squares[kSquaresBlocks];
  ContentHash hashes[kHashBlocks];
  uint32_t bit_checksums[kBitChecksumBlocks];
  graph::LaneContext lanes[exec::Backend::kLanesAtOnce];
  exec::MomentRounding rounding;
  GateState gate;
  PlacedSlice slices[kMaxSlices];
  alignas(alignof(
      exec::OptimizerUpdate)) std::byte updates[kMaxUpdateGroups * sizeof(exec::OptimizerUpdate)];
};
inline constexpr size_t kWorkspaceBytes = (sizeof(Workspace) + 255) / 256 * 256;

}  // namespace lockstep::cuda
