#include "runtime/cuda/ops/attention_padding.h"

#include "runtime/cuda/kernel_tools.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;

// A block for each sample.
__global__ void __launch_bounds__(kThreads) lengths_kernel(graph::AttentionShape shape,
                                                           const int32_t* documents,
                                                           AttentionLengths lengths) {
  const int64_t sample = blockIdx.x;
  int tokens = 0;
  for (int64_t t = threadIdx.x; t < shape.time; t += kThreads)
    tokens += documents[sample * shape.time + t] >= 0 ? 1 : 0;
  tokens = block_reduce<Sum, kThreads>(tokens);
  if (threadIdx.x != 0) return;
  const int keys = tokens > 0 ? tokens : 1;
  lengths.keys[sample] = keys;
  lengths.queries[sample] = shape.padding_sees ? static_cast<int>(shape.time) : keys;
}

// Rows of pairs of elements. The first `query_pairs` of a row belong to the query, the others to
// key and value; both are multiples of four.
struct TokenRows {
  uint32_t* at;
  int64_t pairs, query_pairs;
};

// A warp for each token.
__global__ void __launch_bounds__(kThreads) clear_kernel(graph::AttentionShape shape,
                                                         const int32_t* documents,
                                                         TokenRows rows,
                                                         float* log_sum_exp) {
  const int64_t token = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (token >= shape.batch * shape.time || documents[token] >= 0) return;
  const int64_t sample = token / shape.time;
  const bool sees = shape.padding_sees && documents[sample * shape.time] >= 0;
  constexpr int kAtOnce = 4;
  uint32_t* const row = rows.at + token * rows.pairs;
  for (int64_t i = (sees ? rows.query_pairs : 0) + lane * kAtOnce; i < rows.pairs;
       i += kWarp * kAtOnce)
    store_vector(Vector<uint32_t, kAtOnce>{}, row + i);
  if (log_sum_exp == nullptr || sees) return;
  const int64_t t = token % shape.time;
  for (int64_t head = lane; head < shape.heads; head += kWarp)
    log_sum_exp[(sample * shape.heads + head) * shape.time + t] = 0;
}

void clear(const graph::AttentionShape& shape,
           const int32_t* documents,
           std::byte* rows,
           int64_t width,
           float* log_sum_exp,
           Stream stream) {
  const TokenRows all = {reinterpret_cast<uint32_t*>(rows), width / 2, shape.width() / 2};
  launch({blocks_for(shape.batch * shape.time, kThreads / kWarp), kThreads, stream},
         clear_kernel,
         shape,
         documents,
         all,
         log_sum_exp);
}

}  // namespace

void set_attention_lengths(const graph::AttentionShape& shape,
                           const int32_t* documents,
                           const AttentionLengths& lengths,
                           Stream stream) {
  launch({blocks_for(shape.batch, 1), kThreads, stream}, lengths_kernel, shape, documents, lengths);
}

void clear_padding(const graph::AttentionShape& shape,
                   const int32_t* documents,
                   std::byte* y,
                   float* log_sum_exp,
                   Stream stream) {
  clear(shape, documents, y, shape.width(), log_sum_exp, stream);
}

void clear_padding_gradients(const graph::AttentionShape& shape,
                             const int32_t* documents,
                             std::byte* d_qkv,
                             Stream stream) {
  clear(shape, documents, d_qkv, shape.packed_width(), nullptr, stream);
}

}  // namespace lockstep::cuda
