#pragma once
// Which ops on single elements and rows the GPU supports, and their workspaces.

#include <algorithm>

#include "runtime/cuda/plan/column_sum.h"
#include "runtime/cuda/plan/tiles.h"
#include "runtime/cuda/plan/token_sort.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/ops/gather.h"
#include "runtime/graph/ops/image_normalize.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/reduce.h"
#include "runtime/graph/ops/rotary.h"

namespace lockstep::cuda {

// ---- Embeddings ----

// The sorted ids are cut into tiles.
inline constexpr int64_t kTokenTile = 32;

// The parts of the workspace of the backward pass: sorted ids, their positions, and the temporary
// storage of the sort, which the partial sums reuse when it is done.
struct EmbeddingWorkspace {
  explicit EmbeddingWorkspace(const graph::EmbeddingSizes& sizes)
      : count(sizes.batch * sizes.time),
        positions(aligned_bytes(static_cast<size_t>(count) * sizeof(int32_t))),
        rest(2 * positions) {}
  int64_t count;
  size_t positions, rest;  // offsets in bytes
};

inline size_t embedding_backward_workspace(const graph::OpCall& call) {
  const graph::EmbeddingSizes sizes = graph::EmbeddingBackward<float>{call}.sizes;
  const EmbeddingWorkspace parts(sizes);
  const size_t sums =
      blocks_for(parts.count, kTokenTile) * 2 * static_cast<size_t>(sizes.channels) * sizeof(float);
  return parts.rest + std::max(sort_tokens_workspace_bytes(parts.count), sums);
}

// ---- Gathers ----

// The workspace of the backward pass has three arrays (indices clamped to the extent, sorted
// indices, their positions) and the workspace of the sort. This is the size of one array.
inline size_t gather_array_bytes(int64_t count) {
  return aligned_bytes(static_cast<size_t>(count) * sizeof(int32_t));
}
inline size_t gather_backward_workspace(const graph::OpCall& call) {
  const int64_t count = graph::GatherBackward<float>{call}.sizes.count;
  return count == 0 ? 0 : 3 * gather_array_bytes(count) + sort_tokens_workspace_bytes(count);
}

inline size_t gather_elements_backward_workspace(const graph::OpCall& call) {
  return call.output_dtype(graph::GatherBackwardOut::kDX) == DType::kF32
             ? 0
             : static_cast<size_t>(call.output_shape(graph::GatherBackwardOut::kDX).elements()) *
                   sizeof(float);
}

// ---- Sums ----

// The terms of each sum of a rearrangement's gradient are cut into parts. Each part is summed
// separately, then the parts are added in order.
struct SumParts {
  int64_t count, length;

  static SumParts of(int64_t terms, int64_t outputs) {
    constexpr int64_t kMinTerms = 64;     // min terms per part
    constexpr int64_t kWanted = 1 << 17;  // threads that keep a GPU busy
    constexpr int64_t kMaxParts = 16384;  // below the limit of a grid's second dimension
    const int64_t max_parts = outputs == 0 ? 1 : (kWanted + outputs - 1) / outputs;
    int64_t parts = (terms + kMinTerms - 1) / kMinTerms;
    if (parts > max_parts) parts = max_parts;
    if (parts > kMaxParts) parts = kMaxParts;
    if (parts <= 1) return {1, terms};
    const int64_t length = (terms + parts - 1) / parts;
    return {(terms + length - 1) / length, length};
  }
};
inline size_t rearrange_backward_workspace(
    const graph::RearrangeBackward<std::byte, std::byte>& op) {
  const int64_t outputs = op.view.elements();
  const SumParts parts = SumParts::of(op.terms.count(), outputs);
  return parts.count <= 1 ? 0 : static_cast<size_t>(parts.count * outputs) * sizeof(float);
}

// The parts of the elements that are reduced to one result.
struct ReduceParts {
  int64_t each;  // elements per part
  int64_t count;

  static ReduceParts of(const graph::ReduceLoops& loops) {
    // Enough threads or blocks to fill a GPU even if there are few results.
    const int64_t min_each = loops.by_rows() ? 4096 : 32;
    const int64_t target_parts = loops.by_rows() ? 2048 : 262144;
    const int64_t max_parts =
        std::max<int64_t>(1, target_parts / std::max<int64_t>(1, loops.kept.count));
    const int64_t each = std::max(min_each, (loops.reduced.count + max_parts - 1) / max_parts);
    return {each, std::max<int64_t>(1, (loops.reduced.count + each - 1) / each)};
  }
};
// Whether they are the sums of a matrix's columns, in float: the gradient of a parameter that was
// added to each row.
template <typename T>
bool is_column_sum(const graph::ReduceForward<T>& op) {
  const auto& [kept, reduced] = op.loops;
  return op.kind == graph::ReduceKind::kSum && op.wide && !op.loops.by_rows() && kept.rank == 1 &&
         kept.strides[0] == 1 && kept.count > 0 && reduced.rank == 1 && reduced.count > 0;
}
inline size_t reduce_workspace(const graph::ReduceForward<float>& op) {
  if (is_column_sum(op))
    return column_sum_workspace_bytes(op.loops.reduced.count, op.loops.kept.count);
  const int64_t parts = ReduceParts::of(op.loops).count;
  return parts == 1 ? 0 : static_cast<size_t>(op.loops.kept.count * parts) * sizeof(float);
}

// ---- Rotations ----

inline size_t rotary_workspace(const graph::OpCall& call) {
  return graph::Rotation<float>{call}.workspace_bytes();
}
// Columns are numbered in 32 bits.
inline bool rotary_supports(const graph::OpCall& call) {
  return call.input_shape(graph::RotaryIn::kX).columns() < int64_t{1} << 31;
}

// ---- Images ----

inline constexpr int64_t kMaxImageChannels = 64;

inline bool image_normalize_supports(const graph::ImageNormalize<float>& op) {
  constexpr int64_t kMaxNumbered = (int64_t{1} << 31) - 1;  // elements, in 32 bits
  return op.channels <= kMaxImageChannels && op.images * op.pixels * op.channels <= kMaxNumbered;
}

}  // namespace lockstep::cuda
