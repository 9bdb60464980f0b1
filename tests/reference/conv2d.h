#pragma once
// The products that a convolution and its gradients are sums of.

#include <cstdint>

#include "runtime/graph/conv2d_shape.h"

namespace lockstep::test {

// Calls body(index in y, index in x, index in w) for the first channel of every (output, kernel
// row, kernel column), those of an output in increasing order. The other channels' products are of
// the elements that follow in x and w, group_channels() in all.
template <typename Body>
void for_each_tap(const graph::Conv2dShape& s, const Body& body) {
  const int64_t depth = s.group_channels();
  int64_t at = 0;
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t i = 0; i < s.out_height(); ++i) {
      for (int64_t j = 0; j < s.out_width(); ++j) {
        for (int64_t o = 0; o < s.outputs; ++o, ++at) {
          const int64_t first = o / s.group_outputs() * depth;
          for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
            const int64_t h = i * s.stride_h - s.pad_h + kh * s.dilation_h;
            if (h < 0 || h >= s.height) continue;
            for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
              const int64_t v = j * s.stride_w - s.pad_w + kw * s.dilation_w;
              if (v < 0 || v >= s.width) continue;
              const int64_t pixel = ((n * s.height + h) * s.width + v) * s.channels + first;
              const int64_t weight = ((o * s.kernel_h + kh) * s.kernel_w + kw) * depth;
              body(at, pixel, weight);
            }
          }
        }
      }
    }
  }
}

// Calls body(index in y, index in x, index in w) for every product of the sums, those of an
// output in increasing order of (kernel row, kernel column, channel).
template <typename Body>
void for_each_product(const graph::Conv2dShape& s, const Body& body) {
  const int64_t depth = s.group_channels();
  for_each_tap(s, [&](int64_t out, int64_t in, int64_t tap) {
    for (int64_t c = 0; c < depth; ++c) body(out, in + c, tap + c);
  });
}

}  // namespace lockstep::test
