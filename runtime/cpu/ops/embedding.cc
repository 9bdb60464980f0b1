// Tokens are gathered, and their gradients added, by the op gather.
#include "runtime/graph/ops/embedding.h"

#include <cstring>

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/gather.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/words.h"
#include "runtime/cpu/stored.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/embedding.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// out = a + b for one row; out may be a.
template <typename A, typename B, typename Out>
HWY_INLINE void add_rows(const A* a, const B* b, Out* out, int64_t n) {
  for_each_vector(n, [&](size_t i, auto access) HWY_ATTR {
    access.store(hn::Add(access.load(a + i), access.load(b + i)), out + i);
  });
}

// Rows [begin, end) of the B * T rows of y, with positions.
void embedding_forward_kernel(AnyStored<graph::EmbeddingForward> stored,
                              int64_t begin,
                              int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR {
    const int64_t channels = op.sizes.channels;
    for (int64_t row = begin; row < end; ++row) {
      add_rows(op.token + op.ids[row] * channels,
               op.position + row % op.sizes.time * channels,
               op.y + row * channels,
               channels);
    }
  });
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
HWY_EXPORT(embedding_position_backward_kernel);

namespace {

// A table of tokens as x of the op gather.
graph::GatherSizes table_sizes(const graph::EmbeddingSizes& sizes) {
  return {.extent = sizes.vocabulary, .inner = sizes.channels, .count = sizes.batch * sizes.time};
}

template <typename T>
void run_forward(const graph::EmbeddingForward<T>& op) {
  if (op.position == nullptr)
    return gather_forward<T>(
        {.sizes = table_sizes(op.sizes), .x = op.token, .indices = op.ids, .y = op.y});
  in_parallel(op.sizes.batch * op.sizes.time,
              grain_rows(op.sizes.channels),
              HWY_DYNAMIC_DISPATCH(embedding_forward_kernel),
              op);
}

void run_backward(const graph::EmbeddingBackward<float>& op) {
  const int64_t channels = op.sizes.channels;
  if (op.d_token != nullptr) {
    if (!op.accumulate_token) clear_words(op.d_token, op.sizes.vocabulary * channels);
    add_slices(
        {.sizes = table_sizes(op.sizes), .d_y = op.d_y, .indices = op.ids, .d_x = op.d_token});
  }
  if (op.d_position == nullptr) return;
  in_parallel(op.sizes.time,
              grain_rows(op.sizes.batch * channels),
              HWY_DYNAMIC_DISPATCH(embedding_position_backward_kernel),
              op);
}

constexpr exec::Implementation kRows[] = {
    native_row<run_forward<float>, run_forward<BFloat16>>(graph::OpKind::kEmbedding, "simd"),
    row<run_backward>(graph::OpKind::kEmbeddingBackward, "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuEmbedding = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
