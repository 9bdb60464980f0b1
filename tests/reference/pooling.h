#pragma once
// Pooling in double precision, window by window.

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "runtime/cpu/ops/pooling.h"

namespace lockstep::test {

// Calls body(output element, input elements of its window) for every element of y. Their order is
// row by row.
inline void each_window(const cpu::PoolShape& s,
                        const std::function<void(size_t, const std::vector<size_t>&)>& body) {
  const PoolAttributes& w = s.window;
  size_t out = 0;
  for (int64_t image = 0; image < s.images; ++image) {
    for (int64_t oh = 0; oh < s.out_height; ++oh) {
      for (int64_t ow = 0; ow < s.out_width; ++ow) {
        for (int64_t c = 0; c < s.channels; ++c) {
          std::vector<size_t> inputs;
          for (int64_t kh = 0; kh < w.kernel.height; ++kh) {
            for (int64_t kw = 0; kw < w.kernel.width; ++kw) {
              const int64_t h = oh * w.stride.height - w.padding.height + kh;
              const int64_t v = ow * w.stride.width - w.padding.width + kw;
              if (h < 0 || h >= s.height || v < 0 || v >= s.width) continue;
              inputs.push_back(
                  static_cast<size_t>(((image * s.height + h) * s.width + v) * s.channels + c));
            }
          }
          body(out++, inputs);
        }
      }
    }
  }
}

inline size_t pool_inputs(const cpu::PoolShape& s) {
  return static_cast<size_t>(s.images * s.height * s.width * s.channels);
}
inline size_t pool_outputs(const cpu::PoolShape& s) {
  return static_cast<size_t>(s.images * s.out_height * s.out_width * s.channels);
}

struct PoolResult {
  std::vector<double> y, d_x;
};

inline PoolResult max_pool(const cpu::PoolShape& s,
                           const std::vector<double>& x,
                           const std::vector<double>& d_y) {
  PoolResult result{std::vector<double>(pool_outputs(s)), std::vector<double>(pool_inputs(s))};
  each_window(s, [&](size_t out, const std::vector<size_t>& inputs) {
    size_t best = inputs.front();
    for (const size_t i : inputs) {
      if (x[i] > x[best] || (std::isnan(x[i]))) best = i;
    }
    result.y[out] = x[best];
    result.d_x[best] += d_y[out];
  });
  return result;
}

inline PoolResult avg_pool(const cpu::PoolShape& s,
                           const std::vector<double>& x,
                           const std::vector<double>& d_y) {
  PoolResult result{std::vector<double>(pool_outputs(s)), std::vector<double>(pool_inputs(s))};
  each_window(s, [&](size_t out, const std::vector<size_t>& inputs) {
    const auto area = static_cast<double>(s.window.kernel.height * s.window.kernel.width);
    const double count = s.window.count_include_pad ? area : static_cast<double>(inputs.size());
    for (const size_t i : inputs) {
      result.y[out] += x[i] / count;
      result.d_x[i] += d_y[out] / count;
    }
  });
  return result;
}

}  // namespace lockstep::test
