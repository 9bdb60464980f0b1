// Attention: the choice of kernels, and those for floats. cuDNN is used for the 16-bit types if it
// supports the shape and the masks: causal, windows, and padding at the end of samples
// (attention_padding.h). Otherwise flash_attention.h has kernels on tensor cores for these types,
// and for floats if TF32 is allowed. Forward and backward make the same choice, because each pass
// reads what the other's kind has stored.
//
// The kernels for floats never store the T x T matrix of scores: they compute the online softmax
// (Milakov and Gimelshein 2018) over tiles of keys in shared memory (attention_tiles.h). A row of
// the forward pass, a query q, keeps the largest score so far, the sum of exponentials
// (denominator) and the weighted sum of values. For each key of a tile:
//
//   score = q . k / sqrt D; if score > largest, rescale denominator and sum by e^(largest - score)
//   denominator += e^(score - largest), sum += e^(score - largest) dropout v
//
// At the end out = sum / denominator and log_sum_exp = largest + log(denominator). The backward
// pass recomputes each weight as e^(score - log_sum_exp), in two kernels: query_gradient_kernel has
// a row for each query and visits keys, key_value_gradient_kernel has a row for each key and visits
// queries. So every gradient is summed by one thread group in a fixed order, without atomics, at
// the price of computing the scores twice. The shape alone fixes the order of every sum. Arithmetic
// is in float, without tensor cores. Tiles that no row of the block sees are skipped.
#include "runtime/graph/ops/attention.h"

#include <cmath>
#include <limits>

#include "runtime/base/check.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "runtime/cuda/ops/attention_padding.h"
#include "runtime/cuda/ops/attention_tiles.h"
#include "runtime/cuda/ops/flash_attention.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/plan/attention.h"
#include "runtime/cuda/warn_once.h"
#include "runtime/graph/ops/dropout.h"

namespace lockstep::cuda {
namespace {

using namespace attention_tiles;

template <typename S, typename D>
__global__ void __launch_bounds__(kThreads) forward_kernel(graph::AttentionShape shape,
                                                           D dropout,
                                                           Packed<const float> in,
                                                           const int32_t* document_numbers,
                                                           Tokens<float> out,
                                                           float* log_sum_exp) {
  constexpr int kTile = S::kTileRows;
  __shared__ float keys[kTile][S::kWidth], values[kTile][S::kWidth];
  const ThreadPosition at = thread_position<S>(shape, shape.heads), of_keys = at.of_keys(shape);
  float q[S::kPart], sum[S::kPart] = {};
  read_part<S>(in.q, shape, at, q);
  const float scale = softmax_scale(shape);
  float largest = -std::numeric_limits<float>::infinity(), denominator = 0;
  const Documents documents = documents_of<S>(shape, at, document_numbers);
  const auto [begin_keys, end] = keys_of_block<S>(shape);
  for (int64_t begin = begin_keys; begin < end; begin += kTile) {
    if (!has_tile<S>(shape, documents, begin)) continue;
    __syncthreads();
    read_tile<S>(in.k, shape, of_keys, begin, keys);
    read_tile<S>(in.v, shape, of_keys, begin, values);
    __syncthreads();
#pragma unroll S::kUnroll
    for (int j = 0; j < kTile && begin + j < end; ++j) {
      const float score = dot<S>(q, keys[j] + at.first) * scale;
      if (!shape.reaches(at.row, begin + j) || !same_document(documents, begin + j)) continue;
      if (score > largest) {
        const float shrink = expf(largest - score);
        denominator *= shrink;
#pragma unroll
        for (int i = 0; i < S::kPart; ++i) sum[i] *= shrink;
        largest = score;
      }
      const float weight = expf(score - largest);
      denominator += weight;
      add_scaled<S>(weight * dropout.factor_of(shape, at.number(shape), begin + j, at.row),
                    values[j] + at.first,
                    sum);
    }
  }
#pragma unroll
  for (int i = 0; i < S::kPart; ++i) sum[i] = denominator == 0 ? 0 : sum[i] / denominator;
  write_part<S>(sum, out, shape, at);
  if (at.inside && at.first == 0)
    log_sum_exp[at.statistics(shape) + at.row] =
        denominator == 0 ? 0 : largest + logf(denominator);  // 0 if it has seen nothing
}

// delta = the sum over a head of d_out * out, which the backward pass subtracts from the gradient
// of each weight.
template <typename S>
__global__ void __launch_bounds__(kThreads) delta_kernel(graph::AttentionShape shape,
                                                         Tokens<const float> d_out,
                                                         Tokens<const float> out,
                                                         float* delta) {
  const ThreadPosition at = thread_position<S>(shape, shape.heads);
  float a[S::kPart], b[S::kPart];
  read_part<S>(d_out, shape, at, a);
  read_part<S>(out, shape, at, b);
  const float sum = dot<S>(a, b);
  if (at.inside && at.first == 0) delta[at.statistics(shape) + at.row] = sum;
}

// A thread's row is a query.
template <typename S, typename D>
__global__ void __launch_bounds__(kThreads) query_gradient_kernel(graph::AttentionShape shape,
                                                                  D dropout,
                                                                  Tokens<const float> d_out,
                                                                  Packed<const float> in,
                                                                  const int32_t* document_numbers,
                                                                  const float* log_sum_exp,
                                                                  const float* delta,
                                                                  Tokens<float> d_q) {
  constexpr int kTile = S::kTileRows;
  __shared__ float keys[kTile][S::kWidth], values[kTile][S::kWidth];
  const ThreadPosition at = thread_position<S>(shape, shape.heads), of_keys = at.of_keys(shape);
  float q[S::kPart], d[S::kPart], sum[S::kPart] = {};
  read_part<S>(in.q, shape, at, q);
  read_part<S>(d_out, shape, at, d);
  const int64_t row = at.statistics(shape) + at.row;
  const float log_sum = at.inside ? log_sum_exp[row] : 0, shift = at.inside ? delta[row] : 0;
  const float scale = softmax_scale(shape);
  const Documents documents = documents_of<S>(shape, at, document_numbers);
  const auto [begin_keys, end] = keys_of_block<S>(shape);
  for (int64_t begin = begin_keys; begin < end; begin += kTile) {
    if (!has_tile<S>(shape, documents, begin)) continue;
    __syncthreads();
    read_tile<S>(in.k, shape, of_keys, begin, keys);
    read_tile<S>(in.v, shape, of_keys, begin, values);
    __syncthreads();
#pragma unroll S::kUnroll
    for (int j = 0; j < kTile && begin + j < end; ++j) {
      const float score = dot<S>(q, keys[j] + at.first) * scale;
      const float d_weight = dot<S>(d, values[j] + at.first);
      if (!shape.reaches(at.row, begin + j) || !same_document(documents, begin + j)) continue;
      const float kept = dropout.factor_of(shape, at.number(shape), begin + j, at.row);
      const float d_score = expf(score - log_sum) * (d_weight * kept - shift) * scale;
      add_scaled<S>(d_score, keys[j] + at.first, sum);
    }
  }
  write_part<S>(sum, d_q, shape, at);
}

// A thread's row is a key and its value. If heads share them, the heads are visited one after the
// other. The minimum of one block per multiprocessor keeps the compiler from spilling registers to
// fit a few more blocks.
template <typename S, typename D, bool Shared>
__global__ void __launch_bounds__(kThreads, 1)
    key_value_gradient_kernel(graph::AttentionShape shape,
                              D dropout,
                              Tokens<const float> d_out,
                              Packed<const float> in,
                              const int32_t* numbers,
                              const float* log_sum_exp,
                              const float* delta,
                              Tokens<float> d_k,
                              Tokens<float> d_v) {
  constexpr int kTile = S::kTileRows;
  [[maybe_unused]] constexpr int kUnroll = Shared ? 1 : S::kUnroll;
  __shared__ float queries[kTile][S::kWidth], d_outs[kTile][S::kWidth];
  const ThreadPosition at = thread_position<S>(shape, shape.kv_heads);
  float k[S::kPart], v[S::kPart], sum_k[S::kPart] = {}, sum_v[S::kPart] = {};
  read_part<S>(in.k, shape, at, k);
  read_part<S>(in.v, shape, at, v);
  const float scale = softmax_scale(shape);
  const Documents documents = documents_of<S>(shape, at, numbers, Side::kKeys);
  const Reach reach = queries_of_block<S>(shape);
  const int first = static_cast<int>(reach.first), end = static_cast<int>(reach.end);
  const int group = Shared ? static_cast<int>(shape.group()) : 1;
  ThreadPosition query = at.of_head(at.head * group);
  for (int left = group; left > 0; --left, ++query.head) {
    for (int begin = first; begin < end; begin += kTile) {
      if (!has_tile<S>(shape, documents, begin)) continue;
      __syncthreads();
      read_tile<S>(in.q, shape, query, begin, queries);
      read_tile<S>(d_out, shape, query, begin, d_outs);
      __syncthreads();
#pragma unroll kUnroll
      for (int j = 0; j < kTile && begin + j < end; ++j) {
        const float score = dot<S>(k, queries[j] + at.first) * scale;
        const float d_weight = dot<S>(v, d_outs[j] + at.first);
        if (!shape.reaches(begin + j, at.row) || !same_document(documents, begin + j)) continue;
        const int64_t row = query.statistics(shape) + begin + j;
        const float weight = expf(score - log_sum_exp[row]);
        const float kept = dropout.factor_of(shape, query.number(shape), at.row, begin + j);
        add_scaled<S>(weight * kept, d_outs[j] + at.first, sum_v);
        add_scaled<S>(
            weight * (d_weight * kept - delta[row]) * scale, queries[j] + at.first, sum_k);
      }
    }
  }
  write_part<S>(sum_k, d_k, shape, at);
  write_part<S>(sum_v, d_v, shape, at);
}

// Calls f with the Split for this head size.
template <typename F>
void with_split(int64_t head_size, F f) {
  LOCKSTEP_REQUIRE(head_size <= kMaxHeadSize);
  if (head_size <= 32) return f(Split<8, 4>());
  if (head_size <= 64) return f(Split<16, 4>());
  if (head_size <= 128) return f(Split<16, 8>());
  return f(Split<32, 8>());
}

template <typename S>
Launch launch_config(const graph::AttentionShape& shape, int64_t heads, Stream stream) {
  return {tall_grid(blocks_for(shape.time, S::kRows), shape.batch * heads), kThreads, stream};
}

// Calls f with KeepAll or with the op's dropout. A pass without dropout has separate kernels, which
// draw nothing.
template <typename F>
void with_dropout(const graph::AttentionDropout& dropout, const graph::LaneContext* lane, F f) {
  if (dropout.probability == 0) return f(KeepAll());
  f(DropSome{Dropped::of(dropout, lane)});
}

template <typename D>
void start_forward(const graph::AttentionForward<float>& op, const D& dropout, Stream stream) {
  const Tokens<float> to{op.y, op.shape.width()};
  with_split(op.shape.head_size, [&](auto split) {
    using S = decltype(split);
    launch(launch_config<S>(op.shape, op.shape.heads, stream),
           forward_kernel<S, D>,
           op.shape,
           dropout,
           unpack(op.shape, op.qkv),
           op.documents,
           to,
           op.log_sum_exp);
  });
}

template <typename D>
void start_backward(const graph::AttentionBackward<float>& op, const D& dropout, Stream stream) {
  const Tokens<const float> d_out{op.d_y, op.shape.width()}, out{op.y, op.shape.width()};
  const Packed<const float> in = unpack(op.shape, op.qkv);
  const Packed<float> gradients = unpack(op.shape, op.d_qkv);
  float* const delta = reinterpret_cast<float*>(op.workspace);
  with_split(op.shape.head_size, [&](auto split) {
    using S = decltype(split);
    const Launch config = launch_config<S>(op.shape, op.shape.heads, stream);
    launch(config, delta_kernel<S>, op.shape, d_out, out, delta);
    launch(config,
           query_gradient_kernel<S, D>,
           op.shape,
           dropout,
           d_out,
           in,
           op.documents,
           op.log_sum_exp,
           delta,
           gradients.q);
    launch(launch_config<S>(op.shape, op.shape.kv_heads, stream),
           op.shape.group() > 1 ? key_value_gradient_kernel<S, D, true>
                                : key_value_gradient_kernel<S, D, false>,
           op.shape,
           dropout,
           d_out,
           in,
           op.documents,
           op.log_sum_exp,
           delta,
           gradients.k,
           gradients.v);
  });
}

// ---- The implementations ----

// Arrays are passed as bytes; cuDNN gets their type separately.
using Forward = graph::AttentionForward<std::byte>;
using Backward = graph::AttentionBackward<std::byte>;

void warn(const std::string& why) {
  warn_once("attention uses native kernels on tensor cores, not cuDNN's: " + why);
}

// Whether cuDNN supports the op. The answer is the same for the forward and the backward pass.
bool has_cudnn(const graph::OpCall& op) {
  CudnnAttention& cudnn = *context_of(op).cudnn_attention;
  if (cudnn.supports(attention_shape(op), attention_dtype(op), attention_is_padded(op)))
    return true;
  warn(cudnn.why_not());
  return false;
}

// Runs cuDNN with the lengths of padded samples, whose documents begin at `documents`.
void run_cudnn_pass(const graph::OpCall& call,
                    const CudnnAttentionKey& key,
                    CudnnAttentionArrays arrays,
                    const int32_t* documents) {
  const size_t bytes = cudnn_attention_lengths_bytes(key);
  std::byte* const workspace = call.workspace();
  if (key.padded) {
    const AttentionLengths lengths = {reinterpret_cast<int32_t*>(workspace),
                                      reinterpret_cast<int32_t*>(workspace + bytes)};
    set_attention_lengths(key.shape, documents, lengths, stream_of(call));
    arrays.query_lengths = lengths.queries;
    arrays.key_lengths = lengths.keys;
  }
  context_of(call).cudnn_attention->run(key, arrays, workspace + 2 * bytes);
}

void run_cudnn(const graph::OpCall& call) {
  const Forward op{call};
  const CudnnAttentionKey key = cudnn_attention_key(call);
  run_cudnn_pass(
      call, key, {.qkv = op.qkv, .out = op.y, .log_sum_exp = op.log_sum_exp}, op.documents);
  if (key.padded) clear_padding(op.shape, op.documents, op.y, op.log_sum_exp, stream_of(call));
}

void run_cudnn_backward(const graph::OpCall& call) {
  const Backward op{call};
  const CudnnAttentionKey key = cudnn_attention_key(call);
  const graph::AttentionShape& part = key.shape;
  const auto rows = static_cast<size_t>(part.time * part.heads);
  const size_t out_bytes = static_cast<size_t>(part.time * part.width()) * size_of(key.dtype);
  const size_t qkv_bytes =
      static_cast<size_t>(part.time * part.packed_width()) * size_of(key.dtype);
  for (int64_t first = 0; first < op.shape.batch; first += part.batch) {
    const auto sample = static_cast<size_t>(first);
    run_cudnn_pass(call,
                   key,
                   {.qkv = op.qkv + sample * qkv_bytes,
                    .out = const_cast<std::byte*>(op.y) + sample * out_bytes,
                    .log_sum_exp = const_cast<float*>(op.log_sum_exp) + sample * rows,
                    .d_out = op.d_y + sample * out_bytes,
                    .d_qkv = op.d_qkv + sample * qkv_bytes},
                   key.padded ? op.documents + first * part.time : nullptr);
  }
  if (key.padded) clear_padding_gradients(op.shape, op.documents, op.d_qkv, stream_of(call));
}

// Products of floats may be rounded to TF32.
bool has_tf32(const graph::OpCall& op) { return context_of(op).tf32; }

void run_plain(const graph::OpCall& call) {
  const graph::AttentionForward<float> op{call};
  with_dropout(op.dropout, context_of(call).lane, [&](const auto& dropout) {
    start_forward(op, dropout, stream_of(call));
  });
}

void run_plain_backward(const graph::OpCall& call) {
  const graph::AttentionBackward<float> op{call};
  with_dropout(op.dropout, context_of(call).lane, [&](const auto& dropout) {
    start_backward(op, dropout, stream_of(call));
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_cudnn, cudnn_attention_workspace, cudnn_attention_supports, has_cudnn>(
        graph::OpKind::kAttention, "cudnn"),
    exec::row<flash_attention, exec::no_workspace, half_attention_supports>(
        graph::OpKind::kAttention, "flash"),
    exec::row<flash_attention, exec::no_workspace, float_attention_supports, has_tf32>(
        graph::OpKind::kAttention, "flash"),
    exec::row<run_plain, exec::no_workspace, float_attention_supports>(graph::OpKind::kAttention,
                                                                       "plain"),
    exec::row<run_cudnn_backward, cudnn_attention_workspace, cudnn_attention_supports, has_cudnn>(
        graph::OpKind::kAttentionBackward, "cudnn"),
    exec::row<flash_attention_backward,
              native_attention_backward_workspace,
              half_attention_supports>(graph::OpKind::kAttentionBackward, "flash"),
    exec::row<flash_attention_backward,
              native_attention_backward_workspace,
              float_attention_supports,
              has_tf32>(graph::OpKind::kAttentionBackward, "flash"),
    exec::row<run_plain_backward, native_attention_backward_workspace, float_attention_supports>(
        graph::OpKind::kAttentionBackward, "plain"),
};

}  // namespace

constinit const exec::Implementations kCudaAttention = kRows;

}  // namespace lockstep::cuda
