#pragma once
// What ops on single elements and rows take, and their workspaces.

#include <algorithm>

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

// Where the parts of the workspace of the backward pass lie: sorted ids, places, and what the sort
// needs, or the sums that begin when it is over.
struct EmbeddingWorkspace {
  explicit EmbeddingWorkspace(const EmbeddingSizes& sizes)
      : count(sizes.batch * sizes.time),
        places(aligned_bytes(static_cast<size_t>(count) * sizeof(int32_t))),
        rest(2 * places) {}
  int64_t count;
  size_t places, rest;  // bytes before them
};

inline size_t embedding_backward_workspace(const OpCall& call) {
  const EmbeddingSizes sizes = EmbeddingBackward<float>::of(call).sizes;
  const EmbeddingWorkspace parts(sizes);
  const size_t sums =
      blocks_for(parts.count, kTokenTile) * 2 * static_cast<size_t>(sizes.channels) * sizeof(float);
  return parts.rest + std::max(sort_tokens_workspace_bytes(parts.count), sums);
}

// ---- Gathers ----

// Bytes of each of three arrays of the backward pass: indices within the extent, sorted, their
// places. Behind them lies the sort's.
inline size_t gather_array_bytes(int64_t count) {
  return aligned_bytes(static_cast<size_t>(count) * sizeof(int32_t));
}
inline size_t gather_backward_workspace(const OpCall& call) {
  const int64_t count = GatherBackward<float>::of(call).sizes.count;
  return count == 0 ? 0 : 3 * gather_array_bytes(count) + sort_tokens_workspace_bytes(count);
}

inline size_t gather_elements_backward_workspace(const OpCall& call) {
  return call.output_dtype(0) == DType::kF32
             ? 0
             : static_cast<size_t>(call.output_shape(0).elements()) * sizeof(float);
}

// ---- Sums ----

// The terms of each sum of a rearrangement's gradient are cut into parts: each part is summed for
// itself, then the parts one after the other.
struct SumParts {
  int64_t count, length;

  static SumParts of(int64_t terms, int64_t outputs) {
    constexpr int64_t kLeastTerms = 64;    // of a part
    constexpr int64_t kWanted = 1 << 17;   // threads that make a GPU busy
    constexpr int64_t kMostParts = 16384;  // below what a grid has in its second dimension
    const int64_t most = outputs == 0 ? 1 : (kWanted + outputs - 1) / outputs;
    int64_t parts = (terms + kLeastTerms - 1) / kLeastTerms;
    if (parts > most) parts = most;
    if (parts > kMostParts) parts = kMostParts;
    if (parts <= 1) return {1, terms};
    const int64_t length = (terms + parts - 1) / parts;
    return {(terms + length - 1) / length, length};
  }
};
inline size_t rearrange_backward_workspace(const OpCall& call) {
  const auto op = RearrangeBackward<std::byte, std::byte>::of(call);
  const int64_t outputs = op.view.elements();
  const SumParts parts = SumParts::of(op.terms.count(), outputs);
  return parts.count <= 1 ? 0 : static_cast<size_t>(parts.count * outputs) * sizeof(float);
}

// Parts of what is reduced to one result.
struct ReduceParts {
  int64_t each;  // elements
  int64_t count;

  static ReduceParts of(const ReduceLoops& loops) {
    // Enough threads or blocks to fill a GPU, where there are few results.
    const int64_t least = loops.by_rows() ? 4096 : 32;
    const int64_t wanted = loops.by_rows() ? 2048 : 262144;
    const int64_t most = std::max<int64_t>(1, wanted / std::max<int64_t>(1, loops.kept.count));
    const int64_t each = std::max(least, (loops.reduced.count + most - 1) / most);
    return {each, std::max<int64_t>(1, (loops.reduced.count + each - 1) / each)};
  }
};
inline size_t reduce_workspace(const OpCall& call) {
  const auto op = ReduceForward<float>::of(call);
  const int64_t parts = ReduceParts::of(op.loops).count;
  return parts == 1 ? 0 : static_cast<size_t>(op.loops.kept.count * parts) * sizeof(float);
}

// ---- Rotations ----

inline size_t rotary_workspace(const OpCall& call) {
  return Rotation<float>::of(call).workspace_bytes();
}
// Columns are numbered in 32 bits.
inline bool rotary_supports(const OpCall& call) {
  return call.input_shape(0).columns() < int64_t{1} << 31;
}

// ---- Images ----

inline constexpr int64_t kMostImageChannels = 64;

inline bool image_normalize_supports(const OpCall& call) {
  constexpr int64_t kMostNumbered = (int64_t{1} << 31) - 1;  // elements, in 32 bits
  const auto op = ImageNormalize<float>::of(call);
  return op.channels <= kMostImageChannels && op.images * op.pixels * op.channels <= kMostNumbered;
}

}  // namespace lockstep::cuda
