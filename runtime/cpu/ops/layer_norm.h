#pragma once
// Layer normalisation over the last dimension, fp32, with the addition of a residual branch fused
// in.

#include <cstddef>
#include <cstdint>

namespace lockstep::cpu {

// sum = x + delta (where delta is given), y = (sum - mean) * rstd * gamma + beta, rstd = 1 /
// sqrt(variance + epsilon), each row by its own mean and variance (divided by columns). sum may be
// x or delta; y must be neither of the inputs.
struct LayerNormForward {
  int64_t rows;
  int64_t columns;
  float epsilon;
  const float* x;      // (rows, columns)
  const float* delta;  // (rows, columns) or null: normalise x itself
  const float* gamma;  // (columns)
  const float* beta;   // (columns) or null
  float* sum;          // (rows, columns); unused without delta
  float* y;            // (rows, columns)
  float* mean;         // (rows)
  float* rstd;         // (rows)
};
void layer_norm_forward(const LayerNormForward& op);

// With xhat = (x - mean) * rstd and g = d_y * gamma:
//   d_x = d_sum + rstd * (g - mean(g) - xhat * mean(g * xhat))   (d_sum: the gradient that reaches
//   the sum by other ways, or null) d_gamma = or += sum over rows of d_y * xhat, d_beta = or += sum
//   over rows of d_y
// The sums over rows are taken in fixed blocks of rows. d_x may be d_y or d_sum.
struct LayerNormBackward {
  int64_t rows;
  int64_t columns;
  const float* d_y;  // (rows, columns)
  const float* x;  // (rows, columns) what was normalised: the forward's sum, or its x without delta
  const float* gamma;  // (columns)
  const float* mean;   // (rows)
  const float* rstd;   // (rows)
  const float* d_sum;  // (rows, columns) or null
  float* d_x;          // (rows, columns)
  float* d_gamma;      // (columns)
  float* d_beta;       // (columns) or null
  bool accumulate;     // d_gamma and d_beta: += instead of =
  void* workspace;     // layer_norm_backward_workspace_bytes(rows, columns)
};
void layer_norm_backward(const LayerNormBackward& op);
size_t layer_norm_backward_workspace_bytes(int64_t rows, int64_t columns);

}  // namespace lockstep::cpu
