#pragma once
// The device memory that the backend uses beside the rows of the plan, in one piece.

#include <cstddef>

#include "runtime/cuda/content_hash.h"
#include "runtime/cuda/elementwise.h"
#include "runtime/cuda/matmul.h"
#include "runtime/exec/lane_context.h"
#include "runtime/exec/optimizer_math.h"

namespace lockstep::cuda {

inline constexpr int64_t kMostSquares = int64_t{1} << 31;  // elements of one sum of squares
inline constexpr size_t kMostOptimizerGroups = 4;

struct Workspace {
  std::byte matmul[Matmul::kWorkspaceBytes];  // first: aligned as the whole is
  double squares[kMostSquares / kSquaresBlock];
  ContentHash hashes[kHashBlocks];
  double square_sum;
  ContentHash hash;
  LaneContext lane;
  alignas(alignof(
      OptimizerConstants)) std::byte constants[kMostOptimizerGroups * sizeof(OptimizerConstants)];
};
inline constexpr size_t kWorkspaceBytes = (sizeof(Workspace) + 255) / 256 * 256;

}  // namespace lockstep::cuda
