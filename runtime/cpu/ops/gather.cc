#include "runtime/cpu/ops/gather.h"

#include <algorithm>

#include "runtime/base/half.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/words.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/gather.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Columns [begin, end) of all slices at `outer`.
void add_slices_kernel(const graph::GatherBackward<float>& op,
                       int64_t outer,
                       int64_t begin,
                       int64_t end) {
  const auto [outers, extent, inner, count] = op.sizes;
  float* const d_x = op.d_x + outer * extent * inner + begin;
  const float* const d_y = op.d_y + outer * count * inner + begin;
  for (int64_t i = 0; i < count; ++i) {
    float* const sum = d_x + graph::gathered_index(op.indices[i], extent) * inner;
    const float* const from = d_y + i * inner;
    if (end - begin == 1) {
      *sum += *from;
      continue;
    }
    for_each_vector(end - begin, [&](size_t c, auto access) HWY_ATTR {
      access.store(hn::Add(access.load(sum + c), access.load(from + c)), sum + c);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(add_slices_kernel);

template <typename T>
void gather_forward(const graph::GatherForward<T>& op) {
  const auto [outers, extent, inner, count] = op.sizes;
  parallel_for(outers * count, grain_rows(inner), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t slice =
          row / count * extent + graph::gathered_index(op.indices[row % count], extent);
      copy_words(op.x + slice * inner, inner, op.y + row * inner);
    }
  });
}
template void gather_forward(const graph::GatherForward<float>& op);
template void gather_forward(const graph::GatherForward<BFloat16>& op);

namespace {

template <typename T>
void run_elements(const graph::GatherForward<T>& op) {
  const auto [outers, extent, inner, count] = op.sizes;
  parallel_for(outers * count, grain_rows(inner), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* const from = op.x + row / count * extent * inner;
      for (int64_t c = 0; c < inner; ++c) {
        const int64_t at = row * inner + c;
        op.y[at] = from[graph::gathered_index(op.indices[at], extent) * inner + c];
      }
    }
  });
}

// f(outer, first column, end column) for all columns of all slices, divided at cache-line
// boundaries.
template <typename F>
void for_each_columns(const graph::GatherSizes& sizes, F f) {
  constexpr int64_t kLine = 16;
  const int64_t lines = (sizes.inner + kLine - 1) / kLine;
  const int64_t work = (sizes.extent + sizes.count) * std::min(sizes.inner, kLine);
  parallel_for(sizes.outer * lines, grain_rows(work), [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end;) {
      const int64_t line = at % lines, n = std::min(end - at, lines - line);
      f(at / lines, line * kLine, std::min(sizes.inner, (line + n) * kLine));
      at += n;
    }
  });
}

void run_backward(const graph::GatherBackward<float>& op) {
  clear_words(op.d_x, op.sizes.outer * op.sizes.extent * op.sizes.inner);
  add_slices(op);
}

void run_elements_backward(const graph::GatherBackward<float>& op) {
  const auto [outers, extent, inner, count] = op.sizes;
  for_each_columns(op.sizes, [&](int64_t outer, int64_t begin, int64_t end) {
    float* const d_x = op.d_x + outer * extent * inner;
    for (int64_t e = 0; e < extent; ++e)
      std::fill(d_x + e * inner + begin, d_x + e * inner + end, 0.0f);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t c = begin; c < end; ++c) {
        const int64_t at = (outer * count + i) * inner + c;
        d_x[graph::gathered_index(op.indices[at], extent) * inner + c] += op.d_y[at];
      }
    }
  });
}

constexpr exec::Implementation kRows[] = {
    native_row<gather_forward<float>, gather_forward<BFloat16>>(graph::OpKind::kGather, "copies"),
    row<run_backward>(graph::OpKind::kGatherBackward, "simd"),
    native_row<run_elements<float>, run_elements<BFloat16>>(graph::OpKind::kGatherElements,
                                                            "copies"),
    row<run_elements_backward>(graph::OpKind::kGatherElementsBackward, "plain"),
};

}  // namespace

void add_slices(const graph::GatherBackward<float>& op) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(add_slices_kernel);
  for_each_columns(
      op.sizes, [&](int64_t outer, int64_t begin, int64_t end) { kernel(op, outer, begin, end); });
}

constinit const exec::Implementations kCpuGather = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
