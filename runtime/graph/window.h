#pragma once
// Positions of a window that slides over an image; shared by convolutions and pools.

#include <cstdint>

namespace lockstep::graph {

// The number of positions of a window of `kernel` taps, `dilation` apart, along `size` pixels with
// `padding` more on each side. 0 or less: the window does not fit.
constexpr int64_t window_count(
    int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation = 1) {
  const int64_t room = size + 2 * padding - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

}  // namespace lockstep::graph
