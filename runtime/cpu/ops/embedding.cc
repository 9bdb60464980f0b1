#include "runtime/cpu/ops/embedding.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/embedding.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// out = a + b over one row; out may be a.
HWY_INLINE void add_rows(const float* a, const float* b, float* out, int64_t n) {
  for_each_vector(n, [&](size_t i, auto access) HWY_ATTR {
    access.store(hn::Add(access.load(a + i), access.load(b + i)), out + i);
  });
}

// Rows [begin, end) of the B * T rows of y.
void embedding_forward_kernel(const EmbeddingSizes& sizes,
                              const int32_t* ids,
                              const float* token,
                              const float* position,
                              float* y,
                              int64_t begin,
                              int64_t end) {
  const int64_t channels = sizes.channels;
  for (int64_t row = begin; row < end; ++row) {
    add_rows(token + ids[row] * channels,
             position + row % sizes.time * channels,
             y + row * channels,
             channels);
  }
}

// Columns [begin, end) of every row of d_token: a column belongs to one thread, which adds the
// tokens in order.
void embedding_token_backward_kernel(const EmbeddingSizes& sizes,
                                     const int32_t* ids,
                                     const float* d_y,
                                     float* d_token,
                                     int64_t begin,
                                     int64_t end) {
  const int64_t rows = sizes.batch * sizes.time, channels = sizes.channels;
  for (int64_t row = 0; row < rows; ++row) {
    float* sum = d_token + ids[row] * channels + begin;
    add_rows(sum, d_y + row * channels + begin, sum, end - begin);
  }
}

// Positions [begin, end): the rows of one position are added in the order of the batch.
void embedding_position_backward_kernel(const EmbeddingSizes& sizes,
                                        const float* d_y,
                                        float* d_position,
                                        bool accumulate,
                                        int64_t begin,
                                        int64_t end) {
  const int64_t channels = sizes.channels;
  for (int64_t t = begin; t < end; ++t) {
    float* sum = d_position + t * channels;
    if (!accumulate) std::memset(sum, 0, channels * sizeof(float));
    for (int64_t b = 0; b < sizes.batch; ++b)
      add_rows(sum, d_y + (b * sizes.time + t) * channels, sum, channels);
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

void embedding_forward(const EmbeddingSizes& sizes,
                       const int32_t* ids,
                       const float* token,
                       const float* position,
                       float* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(embedding_forward_kernel);
  parallel_for(
      sizes.batch * sizes.time, grain_rows(sizes.channels), [&](int64_t begin, int64_t end) {
        kernel(sizes, ids, token, position, y, begin, end);
      });
}

void embedding_backward(const EmbeddingSizes& sizes,
                        const int32_t* ids,
                        const float* d_y,
                        float* d_token,
                        bool accumulate_token,
                        float* d_position,
                        bool accumulate_position) {
  const int64_t channels = sizes.channels, rows = sizes.batch * sizes.time;
  if (!accumulate_token) {
    const int64_t elements = sizes.vocabulary * channels;
    parallel_for(elements, kGrainElements, [&](int64_t begin, int64_t end) {
      std::memset(d_token + begin, 0, (end - begin) * sizeof(float));
    });
  }
  // Columns are shared out in whole cache lines.
  constexpr int64_t kLine = 16;
  const auto token_kernel = HWY_DYNAMIC_DISPATCH(embedding_token_backward_kernel);
  parallel_for(
      (channels + kLine - 1) / kLine, grain_rows(rows * kLine), [&](int64_t begin, int64_t end) {
        token_kernel(sizes, ids, d_y, d_token, begin * kLine, std::min(channels, end * kLine));
      });
  const auto position_kernel = HWY_DYNAMIC_DISPATCH(embedding_position_backward_kernel);
  parallel_for(sizes.time, grain_rows(sizes.batch * channels), [&](int64_t begin, int64_t end) {
    position_kernel(sizes, d_y, d_position, accumulate_position, begin, end);
  });
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
