#include "runtime/cpu/ops/padded_identity.h"

#include <algorithm>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"

namespace lockstep::cpu {

void padded_identity_forward(const PaddedIdentityShape& s, const float* x, float* y) {
  const int64_t stride = s.attributes.stride, out_height = s.out_height(),
                out_width = s.out_width(), out_channels = s.out_channels();
  const int64_t row_elements = out_width * out_channels;
  parallel_for(s.images * out_height, grain_rows(row_elements), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t x_row = row / out_height * s.height + row % out_height * stride;
      for (int64_t column = 0; column < out_width; ++column) {
        const float* const from = x + (x_row * s.width + column * stride) * s.channels;
        float* to = y + row * row_elements + column * out_channels;
        to = std::fill_n(to, s.attributes.before, 0.0f);
        to = std::copy_n(from, s.channels, to);
        std::fill_n(to, s.attributes.after, 0.0f);
      }
    }
  });
}

void padded_identity_backward(const PaddedIdentityShape& s, const float* d_y, float* d_x) {
  const int64_t stride = s.attributes.stride, out_height = s.out_height(),
                out_width = s.out_width(), out_channels = s.out_channels();
  const int64_t row_elements = s.width * s.channels;
  parallel_for(s.images * s.height, grain_rows(row_elements), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* const to = d_x + row * row_elements;
      std::fill_n(to, row_elements, 0.0f);
      const int64_t image = row / s.height, h = row % s.height;
      if (h % stride != 0) continue;
      const float* const from =
          d_y + (image * out_height + h / stride) * out_width * out_channels + s.attributes.before;
      for (int64_t column = 0; column < out_width; ++column)
        std::copy_n(from + column * out_channels, s.channels, to + column * stride * s.channels);
    }
  });
}

}  // namespace lockstep::cpu
