#include "runtime/graph/ops/image_tokens.h"

#include <algorithm>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/ops/implementations.h"

namespace lockstep::cpu {
namespace {

void run_forward(const OpCall& call) {
  const auto op = ImageTokensForward<float>::of(call);
  parallel_for(op.batch * op.tokens, grain_rows(op.width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t sample = row / op.tokens, token = row % op.tokens;
      const float* const from =
          token == 0 ? op.class_token : op.x + (sample * (op.tokens - 1) + token - 1) * op.width;
      const float* const position = op.position + token * op.width;
      float* const y = op.y + row * op.width;
      for (int64_t i = 0; i < op.width; ++i) y[i] = from[i] + position[i];
    }
  });
}

// Sums each token's gradients over all samples.
void run_backward(const OpCall& call) {
  const auto op = ImageTokensBackward<float>::of(call);
  parallel_for(op.tokens, grain_rows(op.width * op.batch), [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      float* const sum = op.d_position + token * op.width;
      std::fill_n(sum, op.width, 0.0f);
      for (int64_t sample = 0; sample < op.batch; ++sample) {
        const float* const d_y = op.d_y + (sample * op.tokens + token) * op.width;
        for (int64_t i = 0; i < op.width; ++i) sum[i] += d_y[i];
        if (token > 0)
          std::copy_n(d_y, op.width, op.d_x + (sample * (op.tokens - 1) + token - 1) * op.width);
      }
      if (token == 0) std::copy_n(sum, op.width, op.d_class_token);
    }
  });
}

constexpr Implementation kRows[] = {
    {OpKind::kImageTokens, "rows", run_forward},
    {OpKind::kImageTokensBackward, "rows", run_backward},
};

}  // namespace

constinit const Implementations kCpuImageTokens = kRows;

}  // namespace lockstep::cpu
