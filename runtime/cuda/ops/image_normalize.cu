#include "runtime/cuda/ops/image_normalize.h"

#include "runtime/base/check.h"
#include "runtime/cuda/for_each.h"

namespace lockstep::cuda {
namespace {

// Travels with the launch: y = x * scale + offset.
struct Factors {
  float scale[kMostImageChannels], offset[kMostImageChannels];
};

// An array of n bytes that holds images of `elements` bytes each.
struct Images {
  const uint8_t* x;
  uint32_t n, elements;
};

// Mixes elements, one after the other from `first` on, with those at the same place of the other
// image, where there is one.
class Mixer {
 public:
  __device__ __forceinline__ Mixer(const Images& images, const LaneContext& lane, uint32_t first)
      : images_(images), mix_(lane.mix), at_(first) {
    if (mix_ == 1) return;
    const uint32_t image = first / images.elements, all = images.n / images.elements;
    const auto mixed = static_cast<uint32_t>(lane.valid_rows < all ? lane.valid_rows : all);
    end_ = mixed * images.elements;
    next_image_ = (image + 1) * images.elements;
    distance_ = (mixed - 1 - 2 * image) * images.elements;
  }

  __device__ __forceinline__ float next(uint8_t pixel) {
    const auto own = static_cast<float>(pixel);
    if (mix_ == 1) return own;
    if (at_ == next_image_) {
      next_image_ += images_.elements;
      distance_ -= 2 * images_.elements;
    }
    const uint32_t at = at_++;
    if (at >= end_) return own;
    const auto other = static_cast<float>(images_.x[at + distance_]);
    return fmaf(mix_, own - other, other);
  }

 private:
  const Images& images_;
  float mix_;
  uint32_t at_;
  uint32_t end_ = 0;         // of what is mixed
  uint32_t next_image_ = 0;  // where it begins
  uint32_t distance_ = 0;    // from an element to the other's, modulo 2^32: that may lie before it
};

template <typename T, int N>
__global__ void __launch_bounds__(kFlatThreads) image_normalize_kernel(
    Images images, uint32_t channels, Factors factors, const LaneContext* lane, T* y) {
  // Threads of a warp want different channels at once: constant memory would serve them in turn.
  __shared__ float scale[kMostImageChannels], offset[kMostImageChannels];
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

template <typename T, int N>
void start(const Images& images,
           int64_t channels,
           const Factors& factors,
           const LaneContext* lane,
           T* y,
           Stream stream) {
  launch({{blocks_for(images.n, kFlatThreads * N), 1, 1}, {kFlatThreads, 1, 1}, stream},
         image_normalize_kernel<T, N>,
         images,
         channels,
         factors,
         lane,
         y);
}

}  // namespace

template <typename T>
void image_normalize(const ImageNormalize<T>& op, Stream stream) {
  const auto channels = static_cast<int64_t>(op.mean.size());
  const int64_t elements = op.pixels * channels, n = op.images * elements;
  LOCKSTEP_REQUIRE(channels <= kMostImageChannels && n < (int64_t{1} << 31));
  const Images images{op.x, static_cast<uint32_t>(n), static_cast<uint32_t>(elements)};
  Factors factors{};
  for (size_t c = 0; c < op.mean.size(); ++c) {
    const double deviation = op.std[c];
    factors.scale[c] = static_cast<float>(1 / (255 * deviation));
    factors.offset[c] = static_cast<float>(-op.mean[c] / deviation);
  }
  constexpr int N = kVectorWidth<T>;
  if (is_aligned(op.y) && reinterpret_cast<uintptr_t>(op.x) % N == 0) {
    start<T, N>(images, channels, factors, op.lane, op.y, stream);
  } else {
    start<T, 1>(images, channels, factors, op.lane, op.y, stream);
  }
}

template void image_normalize(const ImageNormalize<float>&, Stream);
template void image_normalize(const ImageNormalize<BFloat16>&, Stream);
template void image_normalize(const ImageNormalize<Float16>&, Stream);

}  // namespace lockstep::cuda
