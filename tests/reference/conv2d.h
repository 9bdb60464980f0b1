#pragma once
// The convolution and its gradients in double precision: plain loops, the oracle of the kernel
// tests.

#include <cmath>
#include <cstdint>
#include <vector>

#include "runtime/cpu/conv2d/conv2d.h"
#include "tests/reference/activations.h"

namespace lockstep::test {

struct Conv2dReference {
  Conv2dShape shape;
  Activation activation;
  std::vector<double> x = {};     // (N, H, W, I)
  std::vector<double> w = {};     // (O, KH, KW, I/G)
  std::vector<double> bias = {};  // (O), or empty

  std::vector<double> pre = {};        // (N, OH, OW, O)
  std::vector<double> y = {};          // (N, OH, OW, O)
  std::vector<double> magnitude = {};  // (N, OH, OW, O) sums over absolute values, for tolerances

  // Calls body(index in y, index in x, index in w) for every product of the sums, those of an
  // output in increasing order of (kernel row, kernel column, channel).
  template <typename Body>
  void for_each_product(const Body& body) const {
    const Conv2dShape& s = shape;
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
                for (int64_t c = 0; c < depth; ++c) body(at, pixel + c, weight + c);
              }
            }
          }
        }
      }
    }
  }

  void forward() {
    pre.assign(shape.out_pixels() * shape.outputs, 0);
    for (size_t i = 0; i < pre.size() && !bias.empty(); ++i) pre[i] = bias[i % shape.outputs];
    magnitude.resize(pre.size());
    for (size_t i = 0; i < pre.size(); ++i) magnitude[i] = std::abs(pre[i]);
    for_each_product([&](int64_t to, int64_t pixel, int64_t weight) {
      pre[to] += x[pixel] * w[weight];
      magnitude[to] += std::abs(x[pixel] * w[weight]);
    });
    y.resize(pre.size());
    for (size_t i = 0; i < pre.size(); ++i) y[i] = activation_value(activation, pre[i]);
  }

  std::vector<double> d_x = {}, d_w = {};  // like x and w
  std::vector<double> d_x_magnitude = {}, d_w_magnitude = {};

  // Gradients of sum(d_y * pre).
  void backward(const std::vector<double>& d_y) {  // (N, OH, OW, O)
    d_x.assign(x.size(), 0);
    d_w.assign(w.size(), 0);
    d_x_magnitude = d_x, d_w_magnitude = d_w;
    for_each_product([&](int64_t from, int64_t pixel, int64_t weight) {
      d_x[pixel] += d_y[from] * w[weight];
      d_x_magnitude[pixel] += std::abs(d_y[from] * w[weight]);
      d_w[weight] += d_y[from] * x[pixel];
      d_w_magnitude[weight] += std::abs(d_y[from] * x[pixel]);
    });
  }
};

}  // namespace lockstep::test
