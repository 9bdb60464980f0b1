#include <algorithm>

#include "runtime/base/threads.h"
#include "runtime/cpu/conv2d/conv2d.h"
#include "runtime/cpu/conv2d/conv2d_gather.h"
#include "runtime/cpu/conv2d/conv2d_parts.h"
#include "runtime/cpu/matmul/gemm_blocking.h"
#include "runtime/cpu/stored.h"

// Depthwise convolutions: each channel is convolved alone, so there is no matrix product, and
// vectors run over the channels. The weights are first transposed to (taps, C).

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/conv2d/conv2d_depthwise.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/matmul/epilogue-inl.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Sums over the taps for one pixel and kVectors vectors of channels; `last` selects the lanes of
// the last vector. all_weights: (taps, C).
template <size_t kVectors, typename T, typename Last>
HWY_INLINE void sum_taps(const Gather<T>& g,
                         const float* all_weights,
                         int64_t h,
                         int64_t w,
                         const T* image,
                         size_t c,
                         Last last,
                         Vec* sum) {
  const F32 d;
  HWY_UNROLL(4)
  for (size_t v = 0; v < kVectors; ++v) sum[v] = hn::Zero(d);
  for (int64_t i = 0; i < g.h.taps; ++i) {
    const int64_t source_h = h + i * g.h.source_tap_step;
    if (source_h < 0 || source_h >= g.h.source_extent) continue;
    for (int64_t j = 0; j < g.w.taps; ++j) {
      const int64_t source_w = w + j * g.w.source_tap_step;
      if (source_w < 0 || source_w >= g.w.source_extent) continue;
      const T* const x = image + source_h * g.a_strides.row + source_w * g.a_strides.pixel + c;
      const int64_t tap =
          (g.h.tap_first + i * g.h.tap_step) * g.kernel_w + g.w.tap_first + j * g.w.tap_step;
      const float* const weights = all_weights + tap * g.tap_stride + c;
      HWY_UNROLL(4)
      for (size_t v = 0; v + 1 < kVectors; ++v) {
        sum[v] = hn::MulAdd(
            FullVector().load(x + v * kVecLanes), hn::LoadU(d, weights + v * kVecLanes), sum[v]);
      }
      constexpr size_t kAt = (kVectors - 1) * kVecLanes;
      sum[kVectors - 1] =
          hn::MulAdd(last.load(x + kAt), last.load(weights + kAt), sum[kVectors - 1]);
    }
  }
}

// Computes row i of one image of the result.
template <Activation kKind, typename T>
HWY_INLINE void depthwise_row(const Gather<T>& g, const float* weights, int64_t n, int64_t i) {
  constexpr size_t kTogether = 4;
  const size_t channels = g.columns;
  const T* const image = g.a + n * g.a_strides.image;
  const int64_t h = g.h.source_first + i * g.h.source_step;
  for (int64_t j = 0; j < g.w.pixels; ++j) {
    const int64_t w = g.w.source_first + j * g.w.source_step;
    const int64_t first = n * g.c_strides.image +
                          (g.h.result_first + i * g.h.result_step) * g.c_strides.row +
                          (g.w.result_first + j * g.w.result_step) * g.c_strides.pixel;
    const auto store = [&](auto access, Vec sum, size_t at) HWY_ATTR {
      access.store(finished<kKind>(g.epilogue, access, sum, at, first + at), g.c + first + at);
    };
    size_t c = 0;
    for (; c + kTogether * kVecLanes <= channels; c += kTogether * kVecLanes) {
      Vec sum[kTogether];
      sum_taps<kTogether>(g, weights, h, w, image, c, FullVector{}, sum);
      HWY_UNROLL(4)
      for (size_t v = 0; v < kTogether; ++v) {
        store(FullVector{}, sum[v], c + v * kVecLanes);
      }
    }
    for_each_vector(channels - c, [&](size_t at, auto access) HWY_ATTR {
      Vec sum[1];
      sum_taps<1>(g, weights, h, w, image, c + at, access, sum);
      store(access, sum[0], c + at);
    });
  }
}

template <typename T>
void depthwise_gather(const Gather<T>& g, const float* weights) {
  const int64_t row_elements = g.w.pixels * g.columns * g.taps();
  parallel_for(
      g.images * g.h.pixels, grain_rows(row_elements), [&](int64_t begin, int64_t end) HWY_ATTR {
        with_activation(g.epilogue.activation, [&](auto kind) HWY_ATTR {
          for (int64_t row = begin; row < end; ++row) {
            depthwise_row<decltype(kind)::value>(g, weights, row / g.h.pixels, row % g.h.pixels);
          }
        });
      });
}

void depthwise_gather_kernel(AnyStored<Gather> stored, const float* weights) {
  stored.with([&](const auto& g) HWY_ATTR { depthwise_gather(g, weights); });
}

// Adds to `sums`, (taps, C), the contributions of row `row` of the outputs of all images, for
// `channels`.
template <typename T>
HWY_INLINE void add_row(const graph::Conv2dBackward<T>& op,
                        int64_t row,
                        Range channels,
                        float* sums) {
  const graph::Conv2dShape& s = op.shape;
  const int64_t out_width = s.out_width(), c_count = s.channels;
  const int64_t top = row % s.out_height() * s.stride_h - s.pad_h;
  const T* const image = op.x + row / s.out_height() * s.height * s.width * c_count;
  for_each_vector(channels.size(), [&](size_t at, auto access) HWY_ATTR {
    const size_t c = channels.begin + at;
    for (int64_t i = 0; i < s.kernel_h; ++i) {
      const int64_t h = top + i * s.dilation_h;
      if (h < 0 || h >= s.height) continue;
      for (int64_t j = 0; j < s.kernel_w; ++j) {
        const int64_t w0 = j * s.dilation_w - s.pad_w;
        const int64_t first = w0 >= 0 ? 0 : ceil_div(-w0, s.stride_w);
        const int64_t last =
            w0 >= s.width ? 0 : std::min(out_width, ceil_div(s.width - w0, s.stride_w));
        float* const to = sums + (i * s.kernel_w + j) * c_count + c;
        Vec sum = access.load(to);
        for (int64_t p = first; p < last; ++p) {
          const T* const from = image + (h * s.width + p * s.stride_w + w0) * c_count + c;
          sum = hn::MulAdd(
              access.load(op.d_y + (row * out_width + p) * c_count + c), access.load(from), sum);
        }
        access.store(sum, to);
      }
    }
  });
}

void depthwise_weight_kernel(AnyStored<graph::Conv2dBackward> stored, Range channels, float* sums) {
  stored.with([&](const auto& op) HWY_ATTR {
    for (int64_t row = 0; row < op.shape.batch * op.shape.out_height(); ++row) {
      add_row(op, row, channels, sums);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(depthwise_gather_kernel);
HWY_EXPORT(depthwise_weight_kernel);

namespace {

int64_t taps_of(const graph::Conv2dShape& s) { return s.kernel_h * s.kernel_w; }

// (C, taps) -> (taps, C), in floats.
template <typename T>
const float* transposed_weights(const graph::Conv2dShape& s, const T* w, void* workspace) {
  const int64_t taps = taps_of(s);
  float* const to = static_cast<float*>(workspace);
  for (int64_t c = 0; c < s.channels; ++c) {
    for (int64_t tap = 0; tap < taps; ++tap) to[tap * s.channels + c] = to_float(w[c * taps + tap]);
  }
  return to;
}

// Without weights, which are given as floats.
template <typename T>
Gather<T> depthwise(const graph::Conv2dShape& s, const GatherAxis& h, const GatherAxis& w) {
  Gather<T> g{};
  g.images = s.batch;
  g.h = h;
  g.w = w;
  g.depth = 1;
  g.kernel_w = s.kernel_w;
  g.tap_stride = s.channels;
  g.columns = s.channels;
  return g;
}

}  // namespace

int64_t depthwise_workspace_bytes(const graph::Conv2dShape& s) {
  return taps_of(s) * s.channels * static_cast<int64_t>(sizeof(float));
}

template <typename T>
void depthwise_forward(const Conv2dProduct<T>& op, void* workspace) {
  const graph::Conv2dShape& s = op.shape;
  Gather<T> g = depthwise<T>(s,
                             forward_axis(s.height, s.kernel_h, s.stride_h, s.pad_h, s.dilation_h),
                             forward_axis(s.width, s.kernel_w, s.stride_w, s.pad_w, s.dilation_w));
  g.a = op.x;
  g.a_strides = pixel_strides(s.height, s.width, s.channels);
  g.c = op.y;
  g.c_strides = pixel_strides(s.out_height(), s.out_width(), s.channels);
  g.epilogue = op.epilogue;
  HWY_DYNAMIC_DISPATCH(depthwise_gather_kernel)(g, transposed_weights(s, op.w, workspace));
}

template <typename T>
void depthwise_backward_input(const graph::Conv2dBackward<T>& op) {
  const graph::Conv2dShape& s = op.shape;
  const float* const weights = transposed_weights(s, op.weight, op.workspace);
  for_each_phase(s, [&](const GatherAxis& axis_h, const GatherAxis& axis_w) {
    Gather<T> g = depthwise<T>(s, axis_h, axis_w);
    g.a = op.d_y;
    g.a_strides = pixel_strides(s.out_height(), s.out_width(), s.channels);
    g.c = op.d_x;
    g.c_strides = pixel_strides(s.height, s.width, s.channels);
    HWY_DYNAMIC_DISPATCH(depthwise_gather_kernel)(g, weights);
  });
}

template <typename T>
void depthwise_backward_weight(const graph::Conv2dBackward<T>& op) {
  const graph::Conv2dShape& s = op.shape;
  const int64_t taps = taps_of(s);
  float* const sums = reinterpret_cast<float*>(op.workspace);
  float* const d_w = op.d_weight;
  const int64_t workers = threads_worth(compute_threads(), s.multiply_adds());
  const auto kernel = HWY_DYNAMIC_DISPATCH(depthwise_weight_kernel);
  for_each_worker(workers, [&](int64_t worker) {
    const Range channels = share(s.channels, 16, worker, workers);
    for (int64_t c = channels.begin; c < channels.end; ++c) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        sums[tap * s.channels + c] = op.accumulate_weight ? d_w[c * taps + tap] : 0.0f;
      }
    }
    kernel(op, channels, sums);
    for (int64_t c = channels.begin; c < channels.end; ++c) {
      for (int64_t tap = 0; tap < taps; ++tap) d_w[c * taps + tap] = sums[tap * s.channels + c];
    }
  });
}

template void depthwise_forward(const Conv2dProduct<float>&, void*);
template void depthwise_forward(const Conv2dProduct<BFloat16>&, void*);
template void depthwise_backward_input(const graph::Conv2dBackward<float>&);
template void depthwise_backward_input(const graph::Conv2dBackward<BFloat16>&);
template void depthwise_backward_weight(const graph::Conv2dBackward<float>&);
template void depthwise_backward_weight(const graph::Conv2dBackward<BFloat16>&);

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
