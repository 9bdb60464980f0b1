#include "runtime/graph/ops/image_normalize.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/plan/indexing.h"

namespace lockstep::cuda {
namespace {

// Passed as a kernel argument: y = x * scale + offset.
struct Factors {
  float scale[kMaxImageChannels], offset[kMaxImageChannels];
};

// An array of n bytes that holds images of `elements` bytes each.
struct Images {
  const uint8_t* x;
  uint32_t n, elements;
};

// Mixes elements, in order from `first` on, with the corresponding elements of the other image, if
// there is one.
class Mixer {
 public:
  __device__ __forceinline__ Mixer(const Images& images,
                                   const graph::LaneContext& lane,
                                   uint32_t first)
      : images_(images), mix_(lane.mix), at_(first) {
    if (mix_ == 1) return;
    const uint32_t image = first / images.elements, all = images.n / images.elements;
    const auto mixed = static_cast<uint32_t>(lane.valid_rows < all ? lane.valid_rows : all);
    end_ = mixed * images.elements;
    next_image_ = (image + 1) * images.elements;
    distance_ = (mixed - 1 - 2 * image) * images.elements;
  }

  __device__ __forceinline__ float next(uint8_t pixel) {
    const auto pixel_value = static_cast<float>(pixel);
    if (mix_ == 1) return pixel_value;
    if (at_ == next_image_) {
      next_image_ += images_.elements;
      distance_ -= 2 * images_.elements;
    }
    const uint32_t at = at_++;
    if (at >= end_) return pixel_value;
    const auto other = static_cast<float>(images_.x[at + distance_]);
    return fmaf(mix_, pixel_value - other, other);
  }

 private:
  const Images& images_;
  float mix_;
  uint32_t at_;
  uint32_t end_ = 0;         // end of the elements that are mixed
  uint32_t next_image_ = 0;  // where the next image begins
  // The offset from an element to the same element of the other image, modulo 2^32, because it may
  // be negative.
  uint32_t distance_ = 0;
};

template <typename T, int N>
__global__ void __launch_bounds__(kFlatThreads) image_normalize_kernel(
    Images images, uint32_t channels, Factors factors, const graph::LaneContext* lane, T* y) {
  // Threads of a warp read different channels at once; constant memory would serialise these reads.
  __shared__ float scale[kMaxImageChannels], offset[kMaxImageChannels];
  if (threadIdx.x < channels) {
    scale[threadIdx.x] = factors.scale[threadIdx.x];
    offset[threadIdx.x] = factors.offset[threadIdx.x];
  }
  __syncthreads();
  const uint32_t first = (blockIdx.x * kFlatThreads + threadIdx.x) * N;
  if (first >= images.n) return;
  Mixer mixer(images, *lane, first);
  uint32_t channel = first % channels;
  const auto normalise = [&](uint8_t pixel) {
    const float value = fmaf(mixer.next(pixel), scale[channel], offset[channel]);
    channel = channel + 1 == channels ? 0 : channel + 1;
    return value;
  };
  if (first + N <= images.n) {
    const auto pixels = *reinterpret_cast<const Vector<uint8_t, N>*>(images.x + first);
    float values[N];
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = normalise(pixels.at[i]);
    store(values, y + first);
  } else {
    for (uint32_t i = first; i < images.n; ++i) y[i] = round_to<T>(normalise(images.x[i]));
  }
}

void run(const graph::OpCall& call) {
  by_type(call.output_dtype(graph::ImageNormalizeOut::kY), [&]<typename T>() {
    const graph::ImageNormalize<T> op{call};
    const int64_t elements = op.pixels * op.channels, n = op.images * elements;
    const Images images{op.x, static_cast<uint32_t>(n), static_cast<uint32_t>(elements)};
    Factors factors{};
    for (int64_t c = 0; c < op.channels; ++c) {
      factors.scale[c] = op.scale(c);
      factors.offset[c] = op.offset(c);
    }
    const bool vectors =
        is_aligned(op.y) && reinterpret_cast<uintptr_t>(op.x) % kVectorWidth<T> == 0;
    with_vectors<T>(vectors, [&](auto width) {
      constexpr int N = decltype(width)::value;
      launch({blocks_for(n, kFlatThreads * N), kFlatThreads, stream_of(call)},
             image_normalize_kernel<T, N>,
             images,
             op.channels,
             factors,
             context_of(call).lane,
             op.y);
    });
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run, exec::no_workspace, image_normalize_supports>(graph::OpKind::kImageNormalize,
                                                                 "native")};

}  // namespace

constinit const exec::Implementations kCudaImageNormalize = kRows;

}  // namespace lockstep::cuda
