#include "runtime/graph/ops/embedding.h"

#include <algorithm>
#include <cstring>

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/embedding.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// out = a + b for one row; out may be a.
HWY_INLINE void add_rows(const float* a, const float* b, float* out, int64_t n) {
  for_each_vector(n, [&](size_t i, auto access) HWY_ATTR {
    access.store(hn::Add(access.load(a + i), access.load(b + i)), out + i);
  });
}

// Rows [begin, end) of the B * T rows of y.
void embedding_forward_kernel(const graph::EmbeddingForward<float>& op,
                              int64_t begin,
                              int64_t end) {
  const int64_t channels = op.sizes.channels;
  for (int64_t row = begin; row < end; ++row) {
    const float* const token = op.token + op.ids[row] * channels;
    float* const y = op.y + row * channels;
    if (op.position == nullptr)
      std::memcpy(y, token, channels * sizeof(float));
    else
      add_rows(token, op.position + row % op.sizes.time * channels, y, channels);
  }
}

// Columns [begin, end) of every row of d_token. A column belongs to one thread, which adds the
// tokens in order.
void embedding_token_backward_kernel(const graph::EmbeddingBackward<float>& op,
                                     int64_t begin,
                                     int64_t end) {
  const int64_t rows = op.sizes.batch * op.sizes.time, channels = op.sizes.channels;
  for (int64_t row = 0; row < rows; ++row) {
    float* sum = op.d_token + op.ids[row] * channels + begin;
    add_rows(sum, op.d_y + row * channels + begin, sum, end - begin);
  }
}

// Positions [begin, end): the rows of one position are added in the order of the batch.
void embedding_position_backward_kernel(const graph::EmbeddingBackward<float>& op,
                                        int64_t begin,
                                        int64_t end) {
  const int64_t channels = op.sizes.channels;
  for (int64_t t = begin; t < end; ++t) {
    float* sum = op.d_position + t * channels;
    if (!op.accumulate_position) std::memset(sum, 0, channels * sizeof(float));
    for (int64_t b = 0; b < op.sizes.batch; ++b)
      add_rows(sum, op.d_y + (b * op.sizes.time + t) * channels, sum, channels);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(embedding_forward_kernel);
HWY_EXPORT(embedding_token_backward_kernel);
HWY_EXPORT(embedding_position_backward_kernel);

namespace {

void run_forward(const graph::EmbeddingForward<float>& op) {
  in_parallel(op.sizes.batch * op.sizes.time,
              grain_rows(op.sizes.channels),
              HWY_DYNAMIC_DISPATCH(embedding_forward_kernel),
              op);
}

void run_backward(const graph::EmbeddingBackward<float>& op) {
  const int64_t channels = op.sizes.channels, rows = op.sizes.batch * op.sizes.time;
  if (op.d_token != nullptr && !op.accumulate_token) {
    const int64_t elements = op.sizes.vocabulary * channels;
    parallel_for(elements, kGrainElements, [&](int64_t begin, int64_t end) {
      std::memset(op.d_token + begin, 0, (end - begin) * sizeof(float));
    });
  }
  // Columns are divided at cache-line boundaries.
  constexpr int64_t kLine = 16;
  const auto token_kernel = HWY_DYNAMIC_DISPATCH(embedding_token_backward_kernel);
  const int64_t lines = op.d_token == nullptr ? 0 : (channels + kLine - 1) / kLine;
  parallel_for(lines, grain_rows(rows * kLine), [&](int64_t begin, int64_t end) {
    token_kernel(op, begin * kLine, std::min(channels, end * kLine));
  });
  if (op.d_position == nullptr) return;
  in_parallel(op.sizes.time,
              grain_rows(op.sizes.batch * channels),
              HWY_DYNAMIC_DISPATCH(embedding_position_backward_kernel),
              op);
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward>(graph::OpKind::kEmbedding, "simd"),
    exec::row<run_backward>(graph::OpKind::kEmbeddingBackward, "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuEmbedding = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
