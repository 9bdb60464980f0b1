#include "runtime/graph/ops/resize.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/pixel_kernel.h"

namespace lockstep::cuda {
namespace {

template <typename T>
struct Forward {
  graph::ResizeCall<T> op;

  template <typename Count>
  __device__ void operator()(int64_t pixel, int64_t channel, Count) const {
    constexpr int N = Count::value;
    const Pixel at(pixel, static_cast<int>(op.out_height), static_cast<int>(op.out_width));
    const graph::ResizeRead down = op.reads_down[at.row], across = op.reads_across[at.column];
    float sums[N] = {};
    for (int i = 0; i < 2; ++i) {
      const int64_t row = at.image * op.height + (i == 0 ? down.first : down.second);
      for (int k = 0; k < 2; ++k) {
        const float weight =
            (i == 0 ? 1 - down.weight : down.weight) * (k == 0 ? 1 - across.weight : across.weight);
        if (weight == 0) continue;  // the pixel may not be finite
        const int64_t column = k == 0 ? across.first : across.second;
        float values[N];
        load(op.from + (row * op.width + column) * op.channels + channel, values);
#pragma unroll
        for (int c = 0; c < N; ++c) sums[c] = fmaf(weight, values[c], sums[c]);
      }
    }
    store(sums, op.to + pixel * op.channels + channel);
  }
};

template <typename T>
struct Backward {
  graph::ResizeCall<T> op;

  template <typename Count>
  __device__ void operator()(int64_t pixel, int64_t channel, Count) const {
    constexpr int N = Count::value;
    const Pixel at(pixel, static_cast<int>(op.height), static_cast<int>(op.width));
    const graph::ResizeReaders rows = op.readers_down[at.row],
                               columns = op.readers_across[at.column];
    float sums[N] = {};
    for (int i = rows.begin; i < rows.end; ++i) {
      const float down = graph::resize_weight(op.reads_down[i], at.row);
      const int64_t line = (at.image * op.out_height + i) * op.out_width;
      for (int j = columns.begin; j < columns.end; ++j) {
        const float weight = down * graph::resize_weight(op.reads_across[j], at.column);
        if (weight == 0) continue;
        float values[N];
        load(op.from + (line + j) * op.channels + channel, values);
#pragma unroll
        for (int c = 0; c < N; ++c) sums[c] = fmaf(weight, values[c], sums[c]);
      }
    }
    store(sums, op.to + pixel * op.channels + channel);
  }
};

template <template <typename> typename Kernel>
void run(const graph::OpCall& call) {
  by_type<graph::ResizeCall>(call, [&]<typename T>(const auto& op) {
    for_each_pixel<kVectorWidth<T>>(call.output_shape(graph::ResizeOut::kY).rows(),
                                    op.channels,
                                    is_vectorizable<T>(op.channels, {op.from, op.to}),
                                    Kernel<T>{op},
                                    stream_of(call));
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run<Forward>, exec::no_workspace, supports_pixels>(graph::OpKind::kResize, "native"),
    exec::row<run<Backward>, exec::no_workspace, supports_pixels>(graph::OpKind::kResizeBackward,
                                                                  "native"),
};

}  // namespace

constinit const exec::Implementations kCudaResize = kRows;

}  // namespace lockstep::cuda
