#pragma once
// Which norms the GPU supports, and their workspaces.

#include <algorithm>

#include "runtime/cuda/plan/tiles.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/ops/group_norm.h"
#include "runtime/graph/ops/qk_norm.h"
#include "runtime/graph/ops/row_norm.h"

namespace lockstep::cuda {

// ---- Rows ----

// Max blocks of the backward pass on a multiprocessor. Each block writes its sums over rows.
inline constexpr int kRowNormBlocks = 2;
inline int64_t max_row_norm_blocks(int64_t rows) {
  return std::min(rows, wave_of_blocks(kMaxMultiprocessors, kRowNormBlocks));
}

inline size_t row_norm_backward_workspace(const graph::RowNormBackward<float>& op) {
  return static_cast<size_t>(max_row_norm_blocks(op.rows) * op.sums()) * sizeof(float);
}

// ---- Heads ----

// Max elements of a head: a warp keeps it in registers, even if it is read element by element.
inline constexpr int64_t kMaxNormedHeadSize = 256;

inline bool qk_norm_supports(const graph::OpCall& op) {
  constexpr int64_t kMaxHeads = int64_t{1} << 31;
  const auto fits = [](const auto& norm) {
    const int64_t size = norm.q.columns;
    return size <= kMaxNormedHeadSize && norm.rest.tokens * norm.rest.width / size < kMaxHeads;
  };
  return op.kind() == graph::OpKind::kQkNorm ? fits(graph::QkNormForward<float>{op})
                                             : fits(graph::QkNormBackward<float>{op});
}

inline size_t qk_norm_backward_workspace(const graph::QkNormBackward<float>& op) {
  return std::max(row_norm_backward_workspace(op.q), row_norm_backward_workspace(op.k));
}

// ---- Batches ----

// Blocks that a multiprocessor has room for, by their registers: of sums over the rows of x, and
// over those of x and its gradients.
inline constexpr int kBatchStatisticsBlocks = 4, kBatchNormSumsBlocks = 2;

inline RowTiles batch_norm_tiles(
    int64_t rows, int64_t channels, int n, int multiprocessors, int blocks) {
  constexpr int64_t kSummedRows = 8;  // min rows per thread
  return row_tiles(rows, channels, n, kSummedRows, wave_of_blocks(multiprocessors, blocks));
}

// The workspace for two sums over the rows of x or d_y, the first input, for each channel.
template <int kBlocks>
size_t batch_norm_workspace(const graph::OpCall& call) {
  const Shape& x = call.input_shape(graph::InputName::at(0));
  const int64_t blocks = max_row_blocks([&](int n) {
    return batch_norm_tiles(x.rows(), x.columns(), n, kMaxMultiprocessors, kBlocks);
  });
  return static_cast<size_t>(2 * blocks * x.columns()) * sizeof(float);
}
inline constexpr auto batch_statistics_workspace = batch_norm_workspace<kBatchStatisticsBlocks>;
inline constexpr auto batch_norm_sums_workspace = batch_norm_workspace<kBatchNormSumsBlocks>;

inline size_t batch_norm_input_gradient_workspace(const graph::BatchNormInputGradient<float>& op) {
  return 2 * static_cast<size_t>(op.in.channels) * sizeof(float);
}

// ---- Groups ----

inline RowTiles group_norm_tiles(const graph::GroupNormShape& s, int n) {
  constexpr int64_t kMaxBlocks = 256;  // per sample, approximately
  return row_tiles(s.pixels, s.channels, n, 4, kMaxBlocks);
}

// The tiles of all samples are numbered in a grid's first dimension.
inline bool group_norm_supports(const graph::OpCall& op) {
  const graph::GroupNormShape s = op.kind() == graph::OpKind::kGroupNorm
                                      ? graph::GroupNormForward<float>{op}.shape
                                      : graph::GroupNormBackward<float>{op}.shape;
  return s.samples * max_row_blocks([&](int n) { return group_norm_tiles(s, n); }) <=
         kMaxBlocksAcross;
}

inline size_t group_norm_tile_sums(const graph::GroupNormShape& s) {
  const int64_t blocks = max_row_blocks([&](int n) { return group_norm_tiles(s, n); });
  return static_cast<size_t>(s.samples * blocks * 2 * s.channels);
}

inline size_t group_norm_workspace(const graph::OpCall& call) {
  return group_norm_tile_sums(graph::GroupNormForward<float>{call}.shape) * sizeof(float);
}

inline size_t group_norm_backward_workspace(const graph::OpCall& call) {
  const graph::GroupNormShape s = graph::GroupNormBackward<float>{call}.shape;
  return (group_norm_tile_sums(s) + static_cast<size_t>(2 * s.samples * (s.channels + s.groups))) *
         sizeof(float);
}

}  // namespace lockstep::cuda
