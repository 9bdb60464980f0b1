#include "runtime/graph/ops/resize.h"

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/resize.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Rows [begin, end) of y, counted over all images. Pixels with weight 0 are not read, because they
// may not be finite.
void resize_forward_kernel(const graph::ResizeCall<float>& op, int64_t begin, int64_t end) {
  const int64_t line = op.width * op.channels;
  for (int64_t row = begin; row < end; ++row) {
    const graph::ResizeRead down = op.reads_down[row % op.out_height];
    const float* const image = op.from + row / op.out_height * op.height * line;
    const float* const rows[] = {image + down.first * line, image + down.second * line};
    const float down_weights[] = {1 - down.weight, down.weight};
    for (int64_t column = 0; column < op.out_width; ++column) {
      const graph::ResizeRead across = op.reads_across[column];
      const int64_t offsets[] = {across.first * op.channels, across.second * op.channels};
      const float across_weights[] = {1 - across.weight, across.weight};
      const float* taps[4];
      float weights[4];
      int count = 0;
      for (int i = 0; i < 2; ++i) {
        for (int k = 0; k < 2; ++k) {
          if (down_weights[i] == 0 || across_weights[k] == 0) continue;
          taps[count] = rows[i] + offsets[k];
          weights[count++] = down_weights[i] * across_weights[k];
        }
      }
      float* const to = op.to + (row * op.out_width + column) * op.channels;
      for_each_vector(static_cast<size_t>(op.channels), [&](size_t c, auto access) HWY_ATTR {
        Vec sum = hn::Mul(set(weights[0]), access.load(taps[0] + c));
        for (int k = 1; k < count; ++k)
          sum = hn::MulAdd(set(weights[k]), access.load(taps[k] + c), sum);
        access.store(sum, to + c);
      });
    }
  }
}

// Rows [begin, end) of d_x, counted over all images.
void resize_backward_kernel(const graph::ResizeCall<float>& op, int64_t begin, int64_t end) {
  const int64_t line = op.out_width * op.channels;
  for (int64_t row = begin; row < end; ++row) {
    const auto h = static_cast<int32_t>(row % op.height);
    const float* const image = op.from + row / op.height * op.out_height * line;
    const graph::ResizeReaders rows = op.readers_down[h];
    for (int32_t w = 0; w < op.width; ++w) {
      const graph::ResizeReaders columns = op.readers_across[w];
      float* const to = op.to + (row * op.width + w) * op.channels;
      for_each_vector(static_cast<size_t>(op.channels), [&](size_t c, auto access) HWY_ATTR {
        Vec sum = hn::Zero(F32());
        for (int32_t i = rows.begin; i < rows.end; ++i) {
          const float down = graph::resize_weight(op.reads_down[i], h);
          for (int32_t j = columns.begin; j < columns.end; ++j) {
            const float weight = down * graph::resize_weight(op.reads_across[j], w);
            if (weight == 0) continue;
            sum = hn::MulAdd(set(weight), access.load(image + i * line + j * op.channels + c), sum);
          }
        }
        access.store(sum, to + c);
      });
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(resize_forward_kernel);
HWY_EXPORT(resize_backward_kernel);

namespace {

void run_forward(const graph::ResizeCall<float>& op) {
  in_parallel(op.images * op.out_height,
              grain_rows(op.out_width * op.channels),
              HWY_DYNAMIC_DISPATCH(resize_forward_kernel),
              op);
}

void run_backward(const graph::ResizeCall<float>& op) {
  in_parallel(op.images * op.height,
              grain_rows(op.width * op.channels),
              HWY_DYNAMIC_DISPATCH(resize_backward_kernel),
              op);
}

constexpr exec::Implementation kRows[] = {
    row<run_forward>(graph::OpKind::kResize, "simd"),
    row<run_backward>(graph::OpKind::kResizeBackward, "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuResize = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
