#pragma once
// local_response_norm: y_c = x_c / s_c^beta, s_c = k + alpha / size * sum of x^2 over the `size`
// channels from c - size / 2 on (Krizhevsky et al. 2012, section 3.3, with the mean instead of the
// sum).
// local_response_norm_backward: d_x_j = d_y_j / s_j^beta - 2 alpha beta / size x_j * sum of d_y_c
// x_c / s_c^(beta + 1) over the channels c whose windows contain j.

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

class GraphBuilder;

enum class LocalResponseNormIn : InputIndex { kX };
enum class LocalResponseNormOut : OutputIndex { kY };
enum class LocalResponseNormBackwardIn : InputIndex { kDY, kX };
enum class LocalResponseNormBackwardOut : OutputIndex { kDX };

struct LocalResponseNormAttributes {
  int64_t size = 5;  // channels of the window
  float alpha = 1e-4f, beta = 0.75f, k = 1;
};

namespace ops {

// x / (k + alpha / size * (sum of squares over `size` channels around))^beta.
TensorId local_response_norm(GraphBuilder& builder,
                             const std::string& name,
                             TensorId x,
                             const LocalResponseNormAttributes& attributes);

}  // namespace ops

template <typename T>
struct LocalResponseNormForward {
  int64_t rows, channels;
  LocalResponseNormAttributes window;
  const T* x;  // (rows, channels); missing channels count as zero
  T* y;        // (rows, channels)

  static LocalResponseNormForward of(const OpCall& op) {
    return {.rows = op.input_shape(LocalResponseNormIn::kX).rows(),
            .channels = op.input_shape(LocalResponseNormIn::kX).columns(),
            .window = op.attributes<LocalResponseNormAttributes>(),
            .x = op.input<T>(LocalResponseNormIn::kX),
            .y = op.output<T>(LocalResponseNormOut::kY)};
  }
};

template <typename T>
struct LocalResponseNormBackward {
  int64_t rows, channels;
  LocalResponseNormAttributes window;
  const T* d_y;  // (rows, channels)
  const T* x;    // (rows, channels)
  T* d_x;        // (rows, channels)

  static LocalResponseNormBackward of(const OpCall& op) {
    return {.rows = op.input_shape(LocalResponseNormBackwardIn::kDY).rows(),
            .channels = op.input_shape(LocalResponseNormBackwardIn::kDY).columns(),
            .window = op.attributes<LocalResponseNormAttributes>(),
            .d_y = op.input<T>(LocalResponseNormBackwardIn::kDY),
            .x = op.input<T>(LocalResponseNormBackwardIn::kX),
            .d_x = op.output<T>(LocalResponseNormBackwardOut::kDX)};
  }
};

// The max number of channels in a window that the kernels support.
inline constexpr int64_t kMaxNormChannels = 32;
inline bool supports_window(const OpCall& op) {
  return op.attributes<LocalResponseNormAttributes>().size <= kMaxNormChannels;
}

}  // namespace lockstep::graph
