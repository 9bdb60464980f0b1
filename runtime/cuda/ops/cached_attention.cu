#include "runtime/graph/ops/cached_attention.h"

#include <limits>

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/flat_copies.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/plan/attention.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;  // per block, which handles a token and a head of q

// Stores element i of the keys (B, S, K, D) and of the values in the KV cache.
template <typename T>
struct StoreTokens {
  graph::CachedAttention<T> op;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    const int64_t d = i % op.head_size, head = i / op.head_size % op.kv_heads;
    const int64_t row = i / (op.head_size * op.kv_heads), b = row / op.tokens;
    const int64_t position = op.position(b, row % op.tokens);
    if (position < 0) return;
    const T* const k = op.qkv + row * op.packed_width() + (op.heads + head) * op.head_size + d;
    op.keys(b, head)[d * op.room + position] = *k;
    op.values(b, head)[position * op.head_size + d] = k[op.kv_heads * op.head_size];
  }
};

// Keys are visited a tile at a time, one per thread, with a running maximum and sum. Then each
// thread adds the tile's values to its elements of y.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    attend_kernel(graph::CachedAttention<T> op, float scale) {
  constexpr int kHeld = kMaxHeadSize / kThreads;
  __shared__ float q[kMaxHeadSize], weights[kThreads];
  const int thread = threadIdx.x;
  const int64_t row = blockIdx.x, h = block_down(), b = row / op.tokens;
  if (h >= op.heads) return;
  const int64_t position = op.position(b, row % op.tokens);
  T* const y = op.y + (row * op.heads + h) * op.head_size;
  for (int64_t d = thread; d < op.head_size; d += kThreads) {
    if (position < 0) y[d] = round_to<T>(0.0f);
    q[d] = to_float(op.qkv[row * op.packed_width() + h * op.head_size + d]);
  }
  if (position < 0) return;
  __syncthreads();
  const T* const keys = op.keys(b, h / op.group());
  const T* const values = op.values(b, h / op.group());
  float sum[kHeld] = {};
  float largest = -std::numeric_limits<float>::infinity(), denominator = 0;
  for (int64_t begin = op.first_key(position); begin <= position; begin += kThreads) {
    const int64_t key = begin + thread;
    float score = -std::numeric_limits<float>::infinity();
    if (key <= position) {
      float dot = 0;
      for (int64_t d = 0; d < op.head_size; ++d) dot += q[d] * to_float(keys[d * op.room + key]);
      score = dot * scale;
    }
    // The barriers of block_reduce() keep a thread from overwriting weights that another one still
    // reads.
    const float before = largest;
    largest = Max::apply(block_reduce<Max, kThreads>(score), before);
    const float weight = key <= position ? expf(score - largest) : 0;
    weights[thread] = weight;
    const float shrink = expf(before - largest);
    denominator = denominator * shrink + block_reduce<Sum, kThreads>(weight);
    const int64_t left = position + 1 - begin;
    const int count = static_cast<int>(left < kThreads ? left : kThreads);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int64_t d = thread + i * kThreads;
      if (d >= op.head_size) break;
      float added = sum[i] * shrink;
      for (int j = 0; j < count; ++j)
        added += weights[j] * to_float(values[(begin + j) * op.head_size + d]);
      sum[i] = added;
    }
  }
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int64_t d = thread + i * kThreads;
    if (d < op.head_size) y[d] = round_to<T>(sum[i] / denominator);
  }
}

void run(const graph::OpCall& call) {
  const Stream stream = stream_of(call);
  by_type<graph::CachedAttention>(call, [&]<typename T>(const auto& op) {
    if (op.new_cache != op.cache) copy_flat(op.cache, op.new_cache, op.cache_elements(), stream);
    const int64_t rows = op.batch * op.tokens;
    for_each_flat<1>(rows * op.kv_heads * op.head_size, false, StoreTokens<T>{op}, stream);
    if (rows == 0) return;
    const float scale = 1 / sqrtf(static_cast<float>(op.head_size));
    launch(
        {tall_grid(blocks_for(rows, 1), op.heads), kThreads, stream}, attend_kernel<T>, op, scale);
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run, exec::no_workspace, cached_attention_supports>(graph::OpKind::kCachedAttention,
                                                                  "native")};

}  // namespace

constinit const exec::Implementations kCudaCachedAttention = kRows;

}  // namespace lockstep::cuda
