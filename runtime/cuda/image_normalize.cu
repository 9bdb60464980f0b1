#include "runtime/cuda/image_normalize.h"

#include "runtime/base/check.h"
#include "runtime/cuda/flat.h"

namespace lockstep::cuda {
namespace {

// Travels with the launch: y = x * scale + offset.
struct Factors {
  float scale[kMostImageChannels], offset[kMostImageChannels];
};

template <typename T, int N>
__global__ void __launch_bounds__(kFlatThreads)
    image_normalize_kernel(const uint8_t* x, uint32_t n, uint32_t channels, Factors factors, T* y) {
  // Threads of a warp want different channels at once: constant memory would serve them in turn.
  __shared__ float scale[kMostImageChannels], offset[kMostImageChannels];
  if (threadIdx.x < channels) {
    scale[threadIdx.x] = factors.scale[threadIdx.x];
    offset[threadIdx.x] = factors.offset[threadIdx.x];
  }
  __syncthreads();
  const uint32_t first = (blockIdx.x * kFlatThreads + threadIdx.x) * N;
  if (first >= n) return;
  uint32_t channel = first % channels;
  const auto normalise = [&](uint8_t pixel) {
    const float value = fmaf(static_cast<float>(pixel), scale[channel], offset[channel]);
    channel = channel + 1 == channels ? 0 : channel + 1;
    return value;
  };
  if (first + N <= n) {
    const auto pixels = *reinterpret_cast<const Vector<uint8_t, N>*>(x + first);
    float values[N];
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = normalise(pixels.at[i]);
    store(values, y + first);
  } else {
    for (uint32_t i = first; i < n; ++i) y[i] = round_to<T>(normalise(x[i]));
  }
}

template <typename T, int N>
void start(const uint8_t* x, int64_t n, int64_t channels, const Factors& f, T* y, Stream stream) {
  launch({{blocks_for(n, kFlatThreads * N), 1, 1}, {kFlatThreads, 1, 1}, stream},
         image_normalize_kernel<T, N>,
         x,
         n,
         channels,
         f,
         y);
}

}  // namespace

template <typename T>
void image_normalize(const uint8_t* x,
                     int64_t pixels,
                     const std::vector<float>& mean,
                     const std::vector<float>& std,
                     T* y,
                     Stream stream) {
  const auto channels = static_cast<int64_t>(mean.size());
  const int64_t n = pixels * channels;
  LOCKSTEP_REQUIRE(channels <= kMostImageChannels && n < (int64_t{1} << 31));
  Factors factors{};
  for (size_t c = 0; c < mean.size(); ++c) {
    const double deviation = std[c];
    factors.scale[c] = static_cast<float>(1 / (255 * deviation));
    factors.offset[c] = static_cast<float>(-mean[c] / deviation);
  }
  constexpr int N = kVectorWidth<T>;
  if (is_aligned(y) && reinterpret_cast<uintptr_t>(x) % N == 0) {
    start<T, N>(x, n, channels, factors, y, stream);
  } else {
    start<T, 1>(x, n, channels, factors, y, stream);
  }
}

template void image_normalize(
    const uint8_t*, int64_t, const std::vector<float>&, const std::vector<float>&, float*, Stream);
template void image_normalize(const uint8_t*,
                              int64_t,
                              const std::vector<float>&,
                              const std::vector<float>&,
                              BFloat16*,
                              Stream);
template void image_normalize(const uint8_t*,
                              int64_t,
                              const std::vector<float>&,
                              const std::vector<float>&,
                              Float16*,
                              Stream);

}  // namespace lockstep::cuda
