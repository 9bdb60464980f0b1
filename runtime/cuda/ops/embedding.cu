#include "runtime/cuda/ops/embedding.h"

#include "runtime/cuda/for_each.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;

// The sorted ids are cut into tiles. A run of equal ids within one tile is summed there at once. Of
// a run that crosses borders, each tile leaves its part: the first of its two rows of partials
// holds the part that came from the tile before, the second a run that begins here and goes on.
constexpr int64_t kTile = 32;

template <int N, typename T>
__global__ void __launch_bounds__(kThreads) forward_kernel(
    EmbeddingSizes sizes, const int32_t* ids, const T* token, const T* position, T* y) {
  const int64_t row = blockIdx.x;
  const int64_t id = ids[row], time = row % sizes.time;
  for (int64_t c = threadIdx.x * N; c < sizes.channels; c += kThreads * N) {
    float sum[N], place[N];
    load(token + id * sizes.channels + c, sum);
    load(position + time * sizes.channels + c, place);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += place[i];
    store(sum, y + row * sizes.channels + c);
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

// Block (tile, columns).
template <int N, typename T>
__global__ void __launch_bounds__(kThreads) sum_runs_kernel(EmbeddingBackward<T> op) {
  const int64_t channels = op.sizes.channels, n = op.sizes.batch * op.sizes.time;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * N;
  if (column >= channels) return;
  const int64_t begin = blockIdx.x * kTile, end = begin + kTile < n ? begin + kTile : n;
  float* const partials = op.workspace + blockIdx.x * 2 * channels + column;
  const bool from_before = begin > 0 && op.sorted_ids[begin - 1] == op.sorted_ids[begin];
  bool first_run = true;
  float sum[N] = {};
  for (int64_t i = begin; i < end; ++i) {
    float d_y[N];
    load(op.d_y + op.places[i] * channels + column, d_y);
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

// Block (tile, columns): completes the run that begins in the tile and goes on in the next ones.
template <int N, typename T>
__global__ void __launch_bounds__(kThreads) join_runs_kernel(EmbeddingBackward<T> op) {
  const int64_t channels = op.sizes.channels, n = op.sizes.batch * op.sizes.time;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * N;
  if (column >= channels) return;
  const int64_t begin = blockIdx.x * kTile, end = begin + kTile;
  if (end >= n) return;
  const int32_t id = op.sorted_ids[end - 1];
  if (op.sorted_ids[end] != id) return;  // ends here
  if (begin > 0 && op.sorted_ids[begin] == id && op.sorted_ids[begin - 1] == id)
    return;  // began before
  const float* partials = op.workspace + blockIdx.x * 2 * channels + column;
  float sum[N];
  load(partials + channels, sum);
  for (int64_t tile = begin + kTile; tile < n && op.sorted_ids[tile] == id; tile += kTile) {
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

struct Zero {
  float* x;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    const float zeros[Count::value] = {};
    store(zeros, x + i);
  }
};

template <int N, typename T>
void sum_tokens(const EmbeddingBackward<T>& op, Stream stream) {
  const int64_t n = op.sizes.batch * op.sizes.time;
  const dim3 grid{blocks_for(n, kTile), blocks_for(op.sizes.channels, kThreads * N), 1};
  launch({grid, {kThreads, 1, 1}, stream}, sum_runs_kernel<N, T>, op);
  launch({grid, {kThreads, 1, 1}, stream}, join_runs_kernel<N, T>, op);
}

}  // namespace

template <typename T>
void embedding_forward(const EmbeddingSizes& sizes,
                       const int32_t* ids,
                       const T* token,
                       const T* position,
                       T* y,
                       Stream stream) {
  const dim3 grid{static_cast<unsigned>(sizes.batch * sizes.time), 1, 1};
  const Launch how{grid, {kThreads, 1, 1}, stream};
  if (is_vectorizable<T>(sizes.channels, {token, position, y})) {
    launch(how, forward_kernel<kVectorWidth<T>, T>, sizes, ids, token, position, y);
  } else {
    launch(how, forward_kernel<1, T>, sizes, ids, token, position, y);
  }
}

template <typename T>
void embedding_backward(const EmbeddingBackward<T>& op, Stream stream) {
  constexpr int kWide = kVectorWidth<T>;
  const bool vectors = is_vectorizable<T>(op.sizes.channels, {op.d_y}) && is_aligned(op.d_token) &&
                       is_aligned(op.workspace) && is_aligned(op.d_position);
  if (!op.accumulate_token) {
    for_each_flat<4>(op.sizes.vocabulary * op.sizes.channels, vectors, Zero{op.d_token}, stream);
  }
  if (vectors) {
    sum_tokens<kWide>(op, stream);
  } else {
    sum_tokens<1>(op, stream);
  }
  const int64_t stride = op.sizes.time * op.sizes.channels;
  const PositionSum<T> sum{op.d_y, op.d_position, op.sizes.batch, stride, op.accumulate_position};
  for_each_flat<kWide>(stride, vectors, sum, stream);
}

size_t embedding_backward_workspace_bytes(const EmbeddingSizes& sizes) {
  const auto tiles = static_cast<size_t>(blocks_for(sizes.batch * sizes.time, kTile));
  return tiles * 2 * static_cast<size_t>(sizes.channels) * sizeof(float);
}

template void embedding_forward(
    const EmbeddingSizes&, const int32_t*, const float*, const float*, float*, Stream);
template void embedding_forward(
    const EmbeddingSizes&, const int32_t*, const BFloat16*, const BFloat16*, BFloat16*, Stream);
template void embedding_forward(
    const EmbeddingSizes&, const int32_t*, const Float16*, const Float16*, Float16*, Stream);
template void embedding_backward(const EmbeddingBackward<float>&, Stream);
template void embedding_backward(const EmbeddingBackward<BFloat16>&, Stream);
template void embedding_backward(const EmbeddingBackward<Float16>&, Stream);

}  // namespace lockstep::cuda
