#pragma once
// Basic types of the image pipeline. Images are (height, width, channels) u8, rows from the top.

#include <cstdint>

namespace lockstep::data {

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

// A view of pixels in memory owned by others: pixel (y, x) begins at origin + y * stride + x *
// channels. If only a region of the image was decoded, `origin` is where pixel (0, 0) would be, and
// only pixels of the region may be read.
struct PixelView {
  const uint8_t* origin = nullptr;
  int64_t stride = 0;  // bytes from row to row
  int channels = 0;
  ImageSize size;  // of the whole image
};

// Limit for an image: 300 MB of RGB, twice as much as any camera produces.
inline constexpr int64_t kMaxPixels = 100'000'000;

// Limit for classes. Memory is allocated for each, which a stray number must not exhaust.
inline constexpr int64_t kMaxClasses = 10'000'000;

}  // namespace lockstep::data
