#pragma once
// Terms of the image pipeline. Images are 8-bit, (height, width, channels), rows from the top.

#include <cstdint>

namespace lockstep {

struct ImageSize {
  int height = 0;
  int width = 0;
  bool operator==(const ImageSize&) const = default;
};

// Rows [top, bottom) and columns [left, right) of an image.
struct ImageRegion {
  int top = 0, bottom = 0;
  int left = 0, right = 0;
};

// Pixels in someone else's memory: pixel (y, x) begins at origin + y * stride + x * channels. Where
// only a region of the image was decoded, `origin` is where pixel (0, 0) would be, and only the
// region may be read.
struct PixelView {
  const uint8_t* origin = nullptr;
  int64_t stride = 0;  // bytes from row to row
  int channels = 0;
  ImageSize size;  // of the whole image
};

// Larger images are refused: 300 MB of RGB, twice what any camera makes.
inline constexpr int64_t kMostPixels = 100'000'000;

// More classes are refused: memory is taken for each, and a stray number should not take it all.
inline constexpr int64_t kMostClasses = 10'000'000;

}  // namespace lockstep
