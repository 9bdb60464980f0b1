#include "runtime/graph/ops/padded_identity.h"

#include <algorithm>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/ops/implementations.h"

namespace lockstep::cpu {
namespace {

void run_forward(const OpCall& call) {
  const auto op = PaddedIdentityForward<float>::of(call);
  const PaddedIdentityShape& s = op.shape;
  const int64_t row_elements = s.out_width * s.out_channels;
  parallel_for(s.images * s.out_height, grain_rows(row_elements), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t x_row = row / s.out_height * s.height + row % s.out_height * s.stride;
      for (int64_t column = 0; column < s.out_width; ++column) {
        const float* const from = op.x + (x_row * s.width + column * s.stride) * s.channels;
        float* const to = op.y + row * row_elements + column * s.out_channels;
        float* const after = std::copy_n(from, s.channels, std::fill_n(to, s.before, 0.0f));
        std::fill(after, to + s.out_channels, 0.0f);
      }
    }
  });
}

void run_backward(const OpCall& call) {
  const auto op = PaddedIdentityBackward<float>::of(call);
  const PaddedIdentityShape& s = op.shape;
  const int64_t row_elements = s.width * s.channels;
  parallel_for(s.images * s.height, grain_rows(row_elements), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* const to = op.d_x + row * row_elements;
      std::fill_n(to, row_elements, 0.0f);
      const int64_t image = row / s.height, h = row % s.height;
      if (h % s.stride != 0) continue;
      const float* const from =
          op.d_y + (image * s.out_height + h / s.stride) * s.out_width * s.out_channels + s.before;
      for (int64_t column = 0; column < s.out_width; ++column)
        std::copy_n(
            from + column * s.out_channels, s.channels, to + column * s.stride * s.channels);
    }
  });
}

constexpr Implementation kRows[] = {
    {OpKind::kPaddedIdentity, "copy", run_forward},
    {OpKind::kPaddedIdentityBackward, "copy", run_backward},
};

}  // namespace

constinit const Implementations kCpuPaddedIdentity = kRows;

}  // namespace lockstep::cpu
