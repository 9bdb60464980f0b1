#pragma once
// Kernels that compute each pixel of an NHWC image by itself, its channels in vectors. Only kernel
// files include this.

#include "runtime/cuda/row_tiles.h"

namespace lockstep::cuda {

// A pixel by its number within (N, H, W), in 32 bits: dividing 64 is slow.
struct Pixel {
  int image, row, column;
  __device__ __forceinline__ Pixel(int64_t number, int height, int width) {
    const auto line = static_cast<uint32_t>(number) / static_cast<uint32_t>(width);
    column = static_cast<int>(static_cast<uint32_t>(number) - line * static_cast<uint32_t>(width));
    image = static_cast<int>(line / static_cast<uint32_t>(height));
    row = static_cast<int>(line) - image * height;
  }
};
// One block at least: without it the compiler spills some registers, to have room for a few more.
template <int N, typename F>
__global__ void __launch_bounds__(kTileThreads, 1)
    pixel_kernel(int64_t pixels, int64_t channels, int width, int64_t block_rows, F f) {
  const TilePlace<N> place(width, block_rows, pixels);
  if (place.channel >= channels) return;
  for (int64_t pixel = place.begin; pixel < place.end; pixel += place.step)
    f(pixel, place.channel, std::integral_constant<int, N>());
}

// f(pixel, first channel, channels as a compile-time constant), a device function object, for all
// channels of all pixels, N at a time where `vectors` says that all its arrays allow it.
template <int N, typename F>
void for_each_pixel(int64_t pixels, int64_t channels, bool vectors, F f, Stream stream) {
  if (pixels == 0 || channels == 0) return;
  const auto start = [&](auto count) {
    constexpr int kCount = decltype(count)::value;
    const RowTiles tiles = row_tiles(pixels, channels, kCount, 2);
    launch({grid_of(tiles), {kTileThreads, 1, 1}, stream},
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
