#include "runtime/graph/ops/embedding.h"

#include <algorithm>

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/flat_copies.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/token_sort.h"
#include "runtime/cuda/plan/indexing.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;

// The sorted ids are cut into tiles of kTokenTile. A run of equal ids within one tile is summed
// directly. A run that spans several tiles has a partial sum in each. A tile has two rows of
// partials: the first for the run that continues from the tile before, the second for a run that
// begins here and continues.

template <typename T>
struct SortedBackward : graph::EmbeddingBackward<T> {
  const int32_t* sorted_ids;  // (B T) the ids in ascending order
  const int32_t* positions;   // (B T) their positions in (B, T); ascending among equal ids
  float* partials;            // (tiles, 2, C)
};

template <int N, typename T>
__global__ void __launch_bounds__(kThreads) forward_kernel(graph::EmbeddingForward<T> op) {
  const int64_t row = blockIdx.x, channels = op.sizes.channels;
  const int64_t id = op.ids[row], time = row % op.sizes.time;
  for (int64_t c = threadIdx.x * N; c < channels; c += kThreads * N) {
    float sum[N];
    load(op.token + id * channels + c, sum);
    if (op.position != nullptr) {
      float position_row[N];
      load(op.position + time * channels + c, position_row);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] += position_row[i];
    }
    store(sum, op.y + row * channels + c);
  }
}

// to = or += sum.
template <int N>
__device__ __forceinline__ void write(float (&sum)[N], bool accumulate, float* to) {
  if (accumulate) {
    float before[N];
    load(to, before);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += before[i];
  }
  store(sum, to);
}

// Block (tile, columns): sums the runs of equal ids within the tile.
template <int N, typename T>
__global__ void __launch_bounds__(kThreads) sum_runs_kernel(SortedBackward<T> op) {
  const int64_t channels = op.sizes.channels, n = op.sizes.batch * op.sizes.time;
  const int64_t column = (block_down() * kThreads + threadIdx.x) * N;
  if (column >= channels) return;
  const int64_t begin = blockIdx.x * kTokenTile,
                end = begin + kTokenTile < n ? begin + kTokenTile : n;
  float* const partials = op.partials + blockIdx.x * 2 * channels + column;
  const bool from_before = begin > 0 && op.sorted_ids[begin - 1] == op.sorted_ids[begin];
  bool first_run = true;
  float sum[N] = {};
  for (int64_t i = begin; i < end; ++i) {
    float d_y[N];
    load(op.d_y + op.positions[i] * channels + column, d_y);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += d_y[k];
    const int32_t id = op.sorted_ids[i];
    if (i + 1 < end && op.sorted_ids[i + 1] == id) continue;
    const bool goes_on = i + 1 == end && end < n && op.sorted_ids[end] == id;
    if (first_run && from_before) {
      write(sum, false, partials);
    } else if (goes_on) {
      write(sum, false, partials + channels);
    } else {
      write(sum, op.accumulate_token, op.d_token + id * channels + column);
    }
    first_run = false;
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] = 0;
  }
}

// Block (tile, columns): completes the run that begins in the tile and continues in the next ones.
template <int N, typename T>
__global__ void __launch_bounds__(kThreads) join_runs_kernel(SortedBackward<T> op) {
  const int64_t channels = op.sizes.channels, n = op.sizes.batch * op.sizes.time;
  const int64_t column = (block_down() * kThreads + threadIdx.x) * N;
  if (column >= channels) return;
  const int64_t begin = blockIdx.x * kTokenTile, end = begin + kTokenTile;
  if (end >= n) return;
  const int32_t id = op.sorted_ids[end - 1];
  if (op.sorted_ids[end] != id) return;  // the run ends here
  if (begin > 0 && op.sorted_ids[begin] == id && op.sorted_ids[begin - 1] == id)
    return;  // the run began in an earlier tile
  const float* partials = op.partials + blockIdx.x * 2 * channels + column;
  float sum[N];
  load(partials + channels, sum);
  for (int64_t tile = begin + kTokenTile; tile < n && op.sorted_ids[tile] == id;
       tile += kTokenTile) {
    partials += 2 * channels;
    float part[N];
    load(partials, part);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += part[k];
  }
  write(sum, op.accumulate_token, op.d_token + id * channels + column);
}

// Each thread sums N elements of d_position over the batch.
template <typename T>
struct PositionSum {
  const T* d_y;
  float* d_position;
  int64_t batch, stride;
  bool accumulate;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    constexpr int N = Count::value;
    float sum[N] = {};
    for (int64_t b = 0; b < batch; ++b) {
      float part[N];
      load(d_y + b * stride + i, part);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += part[k];
    }
    write(sum, accumulate, d_position + i);
  }
};

template <int N, typename T>
void sum_tokens(const SortedBackward<T>& op, Stream stream) {
  const int64_t n = op.sizes.batch * op.sizes.time;
  const dim3 grid =
      tall_grid(blocks_for(n, kTokenTile), blocks_for(op.sizes.channels, kThreads * N));
  launch({grid, kThreads, stream}, sum_runs_kernel<N, T>, op);
  launch({grid, kThreads, stream}, join_runs_kernel<N, T>, op);
}

void run_forward(const graph::OpCall& call) {
  by_type(call.input_dtype(graph::EmbeddingIn::kToken), [&]<typename T>() {
    const graph::EmbeddingForward<T> op{call};
    const dim3 grid{blocks_for(op.sizes.batch * op.sizes.time, 1), 1, 1};
    const Launch config{grid, kThreads, stream_of(call)};
    if (is_vectorizable<T>(op.sizes.channels, {op.token, op.position, op.y})) {
      launch(config, forward_kernel<kVectorWidth<T>, T>, op);
    } else {
      launch(config, forward_kernel<1, T>, op);
    }
  });
}

template <typename T>
void start_backward(const SortedBackward<T>& op, Stream stream) {
  constexpr int kWide = kVectorWidth<T>;
  const bool vectors = is_vectorizable<T>(op.sizes.channels, {op.d_y}) && is_aligned(op.d_token) &&
                       is_aligned(op.partials) && is_aligned(op.d_position);
  if (op.d_token != nullptr && !op.accumulate_token)
    fill_zeros(op.d_token, op.sizes.vocabulary * op.sizes.channels, stream);
  if (op.d_token != nullptr) {
    if (vectors) {
      sum_tokens<kWide>(op, stream);
    } else {
      sum_tokens<1>(op, stream);
    }
  }
  if (op.d_position == nullptr) return;
  const int64_t stride = op.sizes.time * op.sizes.channels;
  const PositionSum<T> sum{op.d_y, op.d_position, op.sizes.batch, stride, op.accumulate_position};
  for_each_flat<kWide>(stride, vectors, sum, stream);
}

void run_backward(const graph::OpCall& call) {
  const Stream stream = stream_of(call);
  by_type<graph::EmbeddingBackward>(call, [&]<typename T>(const auto& op) {
    const EmbeddingWorkspace parts(op.sizes);
    auto* const sorted = call.workspace<int32_t>();
    auto* const positions = reinterpret_cast<int32_t*>(call.workspace() + parts.positions);
    std::byte* const rest = call.workspace() + parts.rest;
    if (op.d_token != nullptr)
      sort_tokens(op.ids, parts.count, op.sizes.vocabulary, sorted, positions, rest, stream);
    start_backward(SortedBackward<T>{op, sorted, positions, reinterpret_cast<float*>(rest)},
                   stream);
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward>(graph::OpKind::kEmbedding, "native"),
    exec::row<run_backward, embedding_backward_workspace>(graph::OpKind::kEmbeddingBackward,
                                                          "native"),
};

}  // namespace

constinit const exec::Implementations kCudaEmbedding = kRows;

}  // namespace lockstep::cuda
