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
  const OpCall& call = OpCall::none();
  int64_t rows = call.input_shape(LocalResponseNormIn::kX).rows();
  int64_t channels = call.input_shape(LocalResponseNormIn::kX).columns();
  LocalResponseNormAttributes window = call.attributes<LocalResponseNormAttributes>();
  // (rows, channels); missing channels count as zero
  const T* x = call.input<T>(LocalResponseNormIn::kX);
  T* y = call.output<T>(LocalResponseNormOut::kY);  // (rows, channels)
};

template <typename T>
struct LocalResponseNormBackward {
  const OpCall& call = OpCall::none();
  int64_t rows = call.input_shape(LocalResponseNormBackwardIn::kDY).rows();
  int64_t channels = call.input_shape(LocalResponseNormBackwardIn::kDY).columns();
  LocalResponseNormAttributes window = call.attributes<LocalResponseNormAttributes>();
  const T* d_y = call.input<T>(LocalResponseNormBackwardIn::kDY);  // (rows, channels)
  const T* x = call.input<T>(LocalResponseNormBackwardIn::kX);     // (rows, channels)
  T* d_x = call.output<T>(LocalResponseNormBackwardOut::kDX);      // (rows, channels)
};

// The max number of channels in a window that the kernels support.
inline constexpr int64_t kMaxNormChannels = 32;
inline bool supports_window(const OpCall& op) {
  return op.attributes<LocalResponseNormAttributes>().size <= kMaxNormChannels;
}

}  // namespace lockstep::graph
