// Attention through cuDNN for the 16-bit types where it will, else by the own kernels: forward and
// backward choose alike, since each pass reads what the other's kind has left.
//
// The own kernels do without the T x T matrix: keys are visited in blocks and the softmax is kept
// as a running maximum and sum. The order of every sum is fixed by the shape alone. Arithmetic is
// in float, without tensor cores.
#include "runtime/graph/ops/attention.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "runtime/base/check.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "runtime/cuda/kernel_tools.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/warn_once.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int64_t kMostHeadSize = 256;
// Most heads of all samples together: what a grid has in its second dimension.
constexpr int64_t kMostHeads = 65535;
constexpr int64_t kMostTime = int64_t{1} << 30;

// How rows are split: Sharers neighbouring threads share a row (a query, or in the gradient of keys
// and values a key), and each holds Part of its D elements. Rows of the other kind pass by in tiles
// in shared memory, with zeros behind D.
template <int Part, int Sharers>
struct Split {
  static constexpr int kPart = Part, kSharers = Sharers, kWidth = Part * Sharers;
  static constexpr int kRows = kThreads / Sharers;
  static constexpr int kTileRows = kWidth <= 128 ? 32 : 16;
  static constexpr int kUnroll = Part <= 16 ? 2 : 1;  // of the loop over a tile: registers are few
};

// Where a thread stands: sample, head, its row and the first of its elements.
struct Place {
  int sample, head, row, first;
  bool inside;  // the row is one of the T tokens

  __device__ __forceinline__ Place of_head(int other) const {
    return {sample, other, row, first, inside};
  }
  // The same where the head of k and v lies that this head reads.
  __device__ __forceinline__ Place of_keys(const AttentionShape& shape) const {
    return of_head(head / static_cast<int>(shape.group()));
  }
  // Of the head's first token, in what is (B, H, T).
  __device__ __forceinline__ int64_t statistics(const AttentionShape& shape) const {
    return (sample * shape.heads + head) * shape.time;
  }
};
// heads: of a sample, each of which has a row of blocks.
template <typename S>
__device__ __forceinline__ Place place_of_thread(const AttentionShape& shape, int64_t heads) {
  const int row = static_cast<int>(blockIdx.x * S::kRows + threadIdx.x / S::kSharers);
  return {static_cast<int>(blockIdx.y / static_cast<unsigned>(heads)),
          static_cast<int>(blockIdx.y % static_cast<unsigned>(heads)),
          row,
          static_cast<int>(threadIdx.x % S::kSharers) * S::kPart,
          row < shape.time};
}

// A matrix of tokens: the element d of head h of token t of sample b is at
// data[((b T + t) stride) + h D + d].
template <typename T>
struct Tokens {
  T* data;
  int64_t stride;
  __device__ __forceinline__ T* row(const AttentionShape& shape, const Place& at, int64_t t) const {
    return data + (at.sample * shape.time + t) * stride + at.head * shape.head_size;
  }
};

template <typename T>
struct Packed {
  Tokens<T> q, k, v;
};
template <typename T>
Packed<T> unpack(const AttentionShape& shape, T* qkv) {
  const int64_t stride = shape.packed_width();
  T* const k = qkv + shape.width();
  return {{qkv, stride}, {k, stride}, {k + shape.kv_width(), stride}};
}

// The thread's part of a row; zeros behind D or where the row is not inside.
template <typename S, typename T>
__device__ __forceinline__ void read_part(const Tokens<const T>& tokens,
                                          const AttentionShape& shape,
                                          const Place& at,
                                          float (&part)[S::kPart]) {
#pragma unroll
  for (int i = 0; i < S::kPart; ++i) {
    const bool there = at.inside && at.first + i < shape.head_size;
    part[i] = there ? to_float(tokens.row(shape, at, at.row)[at.first + i]) : 0;
  }
}

template <typename S, typename T>
__device__ __forceinline__ void write_part(const float (&part)[S::kPart],
                                           const Tokens<T>& tokens,
                                           const AttentionShape& shape,
                                           const Place& at) {
  if (!at.inside) return;
#pragma unroll
  for (int i = 0; i < S::kPart; ++i) {
    if (at.first + i < shape.head_size)
      tokens.row(shape, at, at.row)[at.first + i] = round_to<T>(part[i]);
  }
}

// All threads of the block copy rows [begin, begin + kTileRows) into `tile`, zeros outside.
template <typename S, typename T>
__device__ __forceinline__ void read_tile(const Tokens<const T>& tokens,
                                          const AttentionShape& shape,
                                          const Place& at,
                                          int64_t begin,
                                          float (&tile)[S::kTileRows][S::kWidth]) {
  constexpr int kWidth = S::kWidth;
  for (int i = threadIdx.x; i < S::kTileRows * kWidth; i += kThreads) {
    const int64_t t = begin + i / kWidth, d = i % kWidth;
    const bool there = t < shape.time && d < shape.head_size;
    tile[i / kWidth][d] = there ? to_float(tokens.row(shape, at, t)[d]) : 0;
  }
}

// The product of two rows, whose parts the sharers hold; all of them get the same bits.
template <typename S>
__device__ __forceinline__ float dot(const float (&a)[S::kPart], const float* b) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < S::kPart; ++i) sum = fmaf(a[i], b[i], sum);
#pragma unroll
  for (int distance = 1; distance < S::kSharers; distance *= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  return sum;
}

template <typename S>
__device__ __forceinline__ void add_scaled(float factor, const float* row, float (&to)[S::kPart]) {
#pragma unroll
  for (int i = 0; i < S::kPart; ++i) to[i] = fmaf(factor, row[i], to[i]);
}

__device__ __forceinline__ float softmax_scale(const AttentionShape& shape) {
  return 1.0f / sqrtf(static_cast<float>(shape.head_size));
}

// One past the last key that the block's queries attend to.
template <typename S>
__device__ __forceinline__ int64_t keys_of_block(const AttentionShape& shape) {
  const int64_t end = (static_cast<int64_t>(blockIdx.x) + 1) * S::kRows;
  return shape.causal && end < shape.time ? end : shape.time;
}

template <typename S, typename T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(AttentionShape shape, Packed<const T> in, Tokens<T> out, float* log_sum_exp) {
  constexpr int kTile = S::kTileRows;
  __shared__ float keys[kTile][S::kWidth], values[kTile][S::kWidth];
  const Place at = place_of_thread<S>(shape, shape.heads), of_keys = at.of_keys(shape);
  float q[S::kPart], sum[S::kPart] = {};
  read_part<S>(in.q, shape, at, q);
  const float scale = softmax_scale(shape);
  float largest = -std::numeric_limits<float>::infinity(), denominator = 0;
  const int64_t end = keys_of_block<S>(shape);
  for (int64_t begin = 0; begin < end; begin += kTile) {
    __syncthreads();
    read_tile<S>(in.k, shape, of_keys, begin, keys);
    read_tile<S>(in.v, shape, of_keys, begin, values);
    __syncthreads();
#pragma unroll S::kUnroll
    for (int j = 0; j < kTile && begin + j < end; ++j) {
      const float score = dot<S>(q, keys[j] + at.first) * scale;
      if (shape.causal && begin + j > at.row) continue;
      if (score > largest) {
        const float shrink = expf(largest - score);
        denominator *= shrink;
#pragma unroll
        for (int i = 0; i < S::kPart; ++i) sum[i] *= shrink;
        largest = score;
      }
      const float weight = expf(score - largest);
      denominator += weight;
      add_scaled<S>(weight, values[j] + at.first, sum);
    }
  }
#pragma unroll
  for (int i = 0; i < S::kPart; ++i) sum[i] /= denominator;
  write_part<S>(sum, out, shape, at);
  if (at.inside && at.first == 0)
    log_sum_exp[at.statistics(shape) + at.row] = largest + logf(denominator);
}

// delta = the sum over a head of d_out * out, which backward subtracts from each weight's gradient.
template <typename S, typename T>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(AttentionShape shape, Tokens<const T> d_out, Tokens<const T> out, float* delta) {
  const Place at = place_of_thread<S>(shape, shape.heads);
  float a[S::kPart], b[S::kPart];
  read_part<S>(d_out, shape, at, a);
  read_part<S>(out, shape, at, b);
  const float sum = dot<S>(a, b);
  if (at.inside && at.first == 0) delta[at.statistics(shape) + at.row] = sum;
}

// A thread's row is a query.
template <typename S, typename T>
__global__ void __launch_bounds__(kThreads) query_gradient_kernel(AttentionShape shape,
                                                                  Tokens<const T> d_out,
                                                                  Packed<const T> in,
                                                                  const float* log_sum_exp,
                                                                  const float* delta,
                                                                  Tokens<T> d_q) {
  constexpr int kTile = S::kTileRows;
  __shared__ float keys[kTile][S::kWidth], values[kTile][S::kWidth];
  const Place at = place_of_thread<S>(shape, shape.heads), of_keys = at.of_keys(shape);
  float q[S::kPart], d[S::kPart], sum[S::kPart] = {};
  read_part<S>(in.q, shape, at, q);
  read_part<S>(d_out, shape, at, d);
  const int64_t row = at.statistics(shape) + at.row;
  const float log_sum = at.inside ? log_sum_exp[row] : 0, shift = at.inside ? delta[row] : 0;
  const float scale = softmax_scale(shape);
  const int64_t end = keys_of_block<S>(shape);
  for (int64_t begin = 0; begin < end; begin += kTile) {
    __syncthreads();
    read_tile<S>(in.k, shape, of_keys, begin, keys);
    read_tile<S>(in.v, shape, of_keys, begin, values);
    __syncthreads();
#pragma unroll S::kUnroll
    for (int j = 0; j < kTile && begin + j < end; ++j) {
      const float score = dot<S>(q, keys[j] + at.first) * scale;
      const float d_weight = dot<S>(d, values[j] + at.first);
      if (shape.causal && begin + j > at.row) continue;
      const float d_score = expf(score - log_sum) * (d_weight - shift) * scale;
      add_scaled<S>(d_score, keys[j] + at.first, sum);
    }
  }
  write_part<S>(sum, d_q, shape, at);
}

// A thread's row is a key and its value. Where heads share them, these come one after the other. One
// block at least: without it the compiler spills some registers, to have room for a few more blocks.
template <typename S, typename T, bool Shared>
__global__ void __launch_bounds__(kThreads, 1) key_value_gradient_kernel(AttentionShape shape,
                                                                         Tokens<const T> d_out,
                                                                         Packed<const T> in,
                                                                         const float* log_sum_exp,
                                                                         const float* delta,
                                                                         Tokens<T> d_k,
                                                                         Tokens<T> d_v) {
  constexpr int kTile = S::kTileRows;
  [[maybe_unused]] constexpr int kUnroll = Shared ? 1 : S::kUnroll;
  __shared__ float queries[kTile][S::kWidth], d_outs[kTile][S::kWidth];
  const Place at = place_of_thread<S>(shape, shape.kv_heads);
  float k[S::kPart], v[S::kPart], sum_k[S::kPart] = {}, sum_v[S::kPart] = {};
  read_part<S>(in.k, shape, at, k);
  read_part<S>(in.v, shape, at, v);
  const float scale = softmax_scale(shape);
  const int time = static_cast<int>(shape.time);
  const int first = shape.causal ? static_cast<int>(blockIdx.x) * S::kRows / kTile * kTile : 0;
  const int group = Shared ? static_cast<int>(shape.group()) : 1;
  Place query = at.of_head(at.head * group);
  for (int left = group; left > 0; --left, ++query.head) {
    for (int begin = first; begin < time; begin += kTile) {
      __syncthreads();
      read_tile<S>(in.q, shape, query, begin, queries);
      read_tile<S>(d_out, shape, query, begin, d_outs);
      __syncthreads();
#pragma unroll kUnroll
      for (int j = 0; j < kTile && begin + j < time; ++j) {
        const float score = dot<S>(k, queries[j] + at.first) * scale;
        const float d_weight = dot<S>(v, d_outs[j] + at.first);
        if (shape.causal && begin + j < at.row) continue;
        const int64_t row = query.statistics(shape) + begin + j;
        const float weight = expf(score - log_sum_exp[row]);
        add_scaled<S>(weight, d_outs[j] + at.first, sum_v);
        add_scaled<S>(weight * (d_weight - delta[row]) * scale, queries[j] + at.first, sum_k);
      }
    }
  }
  write_part<S>(sum_k, d_k, shape, at);
  write_part<S>(sum_v, d_v, shape, at);
}

// Calls f with the Split for heads of a size.
template <typename F>
void with_split(int64_t head_size, F f) {
  LOCKSTEP_REQUIRE(head_size <= kMostHeadSize);
  if (head_size <= 32) return f(Split<8, 4>());
  if (head_size <= 64) return f(Split<16, 4>());
  if (head_size <= 128) return f(Split<16, 8>());
  return f(Split<32, 8>());
}

template <typename S>
Launch how_to_launch(const AttentionShape& shape, int64_t heads, Stream stream) {
  const auto all_heads = static_cast<unsigned>(shape.batch * heads);
  return {{blocks_for(shape.time, S::kRows), all_heads, 1}, {kThreads, 1, 1}, stream};
}

template <typename T>
void start_forward(const AttentionForward<T>& op, Stream stream) {
  const Tokens<T> to{op.y, op.shape.width()};
  with_split(op.shape.head_size, [&](auto split) {
    using S = decltype(split);
    launch(how_to_launch<S>(op.shape, op.shape.heads, stream),
           forward_kernel<S, T>,
           op.shape,
           unpack(op.shape, op.qkv),
           to,
           op.log_sum_exp);
  });
}

template <typename T>
void start_backward(const AttentionBackward<T>& op, Stream stream) {
  const Tokens<const T> d_out{op.d_y, op.shape.width()}, out{op.y, op.shape.width()};
  const Packed<const T> in = unpack(op.shape, op.qkv);
  const Packed<T> gradients = unpack(op.shape, op.d_qkv);
  float* const delta = reinterpret_cast<float*>(op.workspace);
  with_split(op.shape.head_size, [&](auto split) {
    using S = decltype(split);
    const Launch how = how_to_launch<S>(op.shape, op.shape.heads, stream);
    launch(how, delta_kernel<S, T>, op.shape, d_out, out, delta);
    launch(
        how, query_gradient_kernel<S, T>, op.shape, d_out, in, op.log_sum_exp, delta, gradients.q);
    launch(how_to_launch<S>(op.shape, op.shape.kv_heads, stream),
           op.shape.group() > 1 ? key_value_gradient_kernel<S, T, true>
                                : key_value_gradient_kernel<S, T, false>,
           op.shape,
           d_out,
           in,
           op.log_sum_exp,
           delta,
           gradients.k,
           gradients.v);
  });
}

// ---- The implementations ----

// Of arrays of any type: cuDNN is told which.
using Forward = AttentionForward<std::byte>;
using Backward = AttentionBackward<std::byte>;

AttentionShape shape_of(const OpCall& op) {
  return op.kind() == OpKind::kAttention ? Forward::of(op).shape : Backward::of(op).shape;
}

// The type of qkv and of all else that is not statistics.
DType dtype_of(const OpCall& op) { return op.input_dtype(0); }

// The samples that one call of cuDNN's backward pass takes.
AttentionShape part_of(AttentionShape shape) {
  shape.batch = cudnn_backward_batch(shape);
  return shape;
}

bool supports_own(const OpCall& op) {
  const AttentionShape shape = shape_of(op);
  return shape.head_size <= kMostHeadSize && shape.batch * shape.heads <= kMostHeads &&
         shape.time <= kMostTime;
}

bool supports_cudnn(const OpCall& op) { return dtype_of(op) != DType::kF32 && supports_own(op); }

// The same for both passes of a shape.
bool has_cudnn(const OpCall& op) {
  CudnnAttention& cudnn = *context_of(op).cudnn_attention;
  if (cudnn.supports(shape_of(op), dtype_of(op))) return true;
  warn_once("attention by the own kernel, which is slower than cuDNN's: " + cudnn.why_not());
  return false;
}

size_t cudnn_workspace(const OpCall& op) {
  return cudnn_attention_workspace_bytes({shape_of(op), dtype_of(op), /*backward=*/false});
}

size_t cudnn_backward_workspace(const OpCall& op) {
  return cudnn_attention_workspace_bytes({part_of(shape_of(op)), dtype_of(op), /*backward=*/true});
}

void run_cudnn(const OpCall& call) {
  const auto op = Forward::of(call);
  context_of(call).cudnn_attention->run({op.shape, dtype_of(call), /*backward=*/false},
                                        {.qkv = op.qkv, .out = op.y, .log_sum_exp = op.log_sum_exp},
                                        op.workspace);
}

void run_cudnn_backward(const OpCall& call) {
  const auto op = Backward::of(call);
  const AttentionShape part = part_of(op.shape);
  const DType dtype = dtype_of(call);
  const auto rows = static_cast<size_t>(part.time * part.heads);
  const size_t out_bytes = static_cast<size_t>(part.time * part.width()) * size_of(dtype);
  const size_t qkv_bytes = static_cast<size_t>(part.time * part.packed_width()) * size_of(dtype);
  for (int64_t first = 0; first < op.shape.batch; first += part.batch) {
    const auto sample = static_cast<size_t>(first);
    context_of(call).cudnn_attention->run(
        {part, dtype, /*backward=*/true},
        {.qkv = op.qkv + sample * qkv_bytes,
         .out = const_cast<std::byte*>(op.y) + sample * out_bytes,
         .log_sum_exp = const_cast<float*>(op.log_sum_exp) + sample * rows,
         .d_out = op.d_y + sample * out_bytes,
         .d_qkv = op.d_qkv + sample * qkv_bytes},
        op.workspace);
  }
}

void run_own(const OpCall& call) {
  by_type(dtype_of(call),
          [&]<typename T>() { start_forward(AttentionForward<T>::of(call), stream_of(call)); });
}

size_t own_backward_workspace(const OpCall& op) {
  const AttentionShape shape = shape_of(op);
  return static_cast<size_t>(shape.batch * shape.heads * shape.time) * sizeof(float);
}

void run_own_backward(const OpCall& call) {
  by_type(dtype_of(call),
          [&]<typename T>() { start_backward(AttentionBackward<T>::of(call), stream_of(call)); });
}

constexpr Implementation kRows[] = {
    {OpKind::kAttention, "cudnn", run_cudnn, cudnn_workspace, supports_cudnn, has_cudnn},
    {.kind = OpKind::kAttention, .name = "own", .run = run_own, .supports = supports_own},
    {OpKind::kAttentionBackward,
     "cudnn",
     run_cudnn_backward,
     cudnn_backward_workspace,
     supports_cudnn,
     has_cudnn},
    {OpKind::kAttentionBackward, "own", run_own_backward, own_backward_workspace, supports_own},
};

}  // namespace

constinit const Implementations kCudaAttention = kRows;

}  // namespace lockstep::cuda
