#pragma once
// local_response_norm: y_c = x_c / s_c^beta, s_c = k + alpha / size * sum of x^2 over the `size`
// channels from c - size / 2 on (Krizhevsky et al. 2012, section 3.3, with the sum's mean).
//   inputs x (..., C); outputs y (..., C)
// local_response_norm_backward: d_x_j = d_y_j / s_j^beta - 2 alpha beta / size x_j * sum of d_y_c
// x_c / s_c^(beta + 1) over the channels c whose windows hold j.
//   inputs d_y, x; outputs d_x

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

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
}  // namespace lockstep
