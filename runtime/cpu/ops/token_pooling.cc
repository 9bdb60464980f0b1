#include "runtime/graph/ops/token_pooling.h"

#include <algorithm>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/ops/implementations.h"

namespace lockstep::cpu {
namespace {

void run_forward(const graph::TokenPoolingForward<float>& op) {
  const int64_t tokens = op.counted.tokens;
  parallel_for(op.batch, grain_rows(op.width * tokens), [&](int64_t begin, int64_t end) {
    for (int64_t sample = begin; sample < end; ++sample) {
      float* const y = op.y + sample * op.width;
      std::fill_n(y, op.width, 0.0f);
      for (int64_t token = 0; token < tokens; ++token) {
        if (!op.counted.is_counted(sample, token)) continue;
        const float* const x = op.x + (sample * tokens + token) * op.width;
        for (int64_t i = 0; i < op.width; ++i) y[i] += x[i];
      }
      const float share = op.counted.share(sample);
      for (int64_t i = 0; i < op.width; ++i) y[i] *= share;
    }
  });
}

void run_backward(const graph::TokenPoolingBackward<float>& op) {
  const int64_t tokens = op.counted.tokens;
  parallel_for(op.batch, grain_rows(op.width * tokens), [&](int64_t begin, int64_t end) {
    for (int64_t sample = begin; sample < end; ++sample) {
      const float* const d_y = op.d_y + sample * op.width;
      const float share = op.counted.share(sample);
      for (int64_t token = 0; token < tokens; ++token) {
        float* const d_x = op.d_x + (sample * tokens + token) * op.width;
        const float factor = op.counted.is_counted(sample, token) ? share : 0.0f;
        for (int64_t i = 0; i < op.width; ++i) d_x[i] = factor * d_y[i];
      }
    }
  });
}

constexpr exec::Implementation kRows[] = {
    row<run_forward>(graph::OpKind::kTokenPooling, "rows"),
    row<run_backward>(graph::OpKind::kTokenPoolingBackward, "rows"),
};

}  // namespace

constinit const exec::Implementations kCpuTokenPooling = kRows;

}  // namespace lockstep::cpu
