#pragma once
// Layer normalisation in double precision.

#include <cmath>
#include <cstdint>
#include <vector>

namespace lockstep::test {

struct LayerNormResult {
  std::vector<double> y;           // (rows, columns)
  std::vector<double> mean, rstd;  // (rows)
};

// beta may be empty.
inline LayerNormResult layer_norm_forward(const std::vector<double>& x,
                                          const std::vector<double>& gamma,
                                          const std::vector<double>& beta,
                                          int64_t rows,
                                          double epsilon) {
  const int64_t columns = gamma.size();
  LayerNormResult result{
      std::vector<double>(x.size()), std::vector<double>(rows), std::vector<double>(rows)};
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < columns; ++c) mean += x[r * columns + c] / columns;
    for (int64_t c = 0; c < columns; ++c)
      variance += std::pow(x[r * columns + c] - mean, 2) / columns;
    const double rstd = 1 / std::sqrt(variance + epsilon);
    for (int64_t c = 0; c < columns; ++c) {
      const double xhat = (x[r * columns + c] - mean) * rstd;
      result.y[r * columns + c] = xhat * gamma[c] + (beta.empty() ? 0 : beta[c]);
    }
    result.mean[r] = mean;
    result.rstd[r] = rstd;
  }
  return result;
}

struct LayerNormGradients {
  std::vector<double> d_x;              // (rows, columns), without what reaches x by other ways
  std::vector<double> d_gamma, d_beta;  // (columns)
};

inline LayerNormGradients layer_norm_backward(const std::vector<double>& d_y,
                                              const std::vector<double>& x,
                                              const std::vector<double>& gamma,
                                              int64_t rows,
                                              double epsilon) {
  const int64_t columns = gamma.size();
  const LayerNormResult forward = layer_norm_forward(x, gamma, {}, rows, epsilon);
  LayerNormGradients result{
      std::vector<double>(x.size()), std::vector<double>(columns), std::vector<double>(columns)};
  for (int64_t r = 0; r < rows; ++r) {
    double g_mean = 0, g_xhat_mean = 0;
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t i = r * columns + c;
      const double xhat = (x[i] - forward.mean[r]) * forward.rstd[r];
      g_mean += d_y[i] * gamma[c] / columns;
      g_xhat_mean += d_y[i] * gamma[c] * xhat / columns;
      result.d_gamma[c] += d_y[i] * xhat;
      result.d_beta[c] += d_y[i];
    }
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t i = r * columns + c;
      const double xhat = (x[i] - forward.mean[r]) * forward.rstd[r];
      result.d_x[i] = forward.rstd[r] * (d_y[i] * gamma[c] - g_mean - xhat * g_xhat_mean);
    }
  }
  return result;
}

}  // namespace lockstep::test
