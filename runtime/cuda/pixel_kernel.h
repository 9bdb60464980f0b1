#pragma once
// Kernels that compute each pixel of an NHWC image separately, with channels in vectors. Only
// kernel files include this.

#include "runtime/cuda/row_tiles.h"

namespace lockstep::cuda {

// The coordinates of a pixel, from its index within (N, H, W), in 32 bits because 64-bit division
// is slow.
struct Pixel {
  int image, row, column;
  __device__ __forceinline__ Pixel(int64_t number, int height, int width) {
    const auto line = static_cast<uint32_t>(number) / static_cast<uint32_t>(width);
    column = static_cast<int>(static_cast<uint32_t>(number) - line * static_cast<uint32_t>(width));
    image = static_cast<int>(line / static_cast<uint32_t>(height));
    row = static_cast<int>(line) - image * height;
  }
};
// The minimum of one block per multiprocessor keeps the compiler from spilling registers to fit a
// few more blocks.
template <int N, typename F>
__global__ void __launch_bounds__(kTileThreads, 1)
    pixel_kernel(int64_t pixels, int64_t channels, int width, int64_t block_rows, F f) {
  const TilePosition<N> position(width, block_rows, pixels);
  if (position.channel >= channels) return;
  for (int64_t pixel = position.begin; pixel < position.end; pixel += position.step)
    f(pixel, position.channel, std::integral_constant<int, N>());
}

// Calls f(pixel, first channel, channels as a compile-time constant), a device function object, for
// all channels of all pixels: N channels at a time if `vectors`, which requires that all its arrays
// are aligned for it.
template <int N, typename F>
void for_each_pixel(int64_t pixels, int64_t channels, bool vectors, F f, Stream stream) {
  if (pixels == 0 || channels == 0) return;
  const auto start = [&](auto count) {
    constexpr int kCount = decltype(count)::value;
    const RowTiles tiles = row_tiles(pixels, channels, kCount, 2);
    launch({grid_of(tiles), kTileThreads, stream},
           pixel_kernel<kCount, F>,
           pixels,
           channels,
           tiles.width,
           tiles.block_rows,
           f);
  };
  if (vectors) {
    start(std::integral_constant<int, N>());
  } else {
    start(std::integral_constant<int, 1>());
  }
}

}  // namespace lockstep::cuda
