#pragma once
// Batch normalisation in double precision.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace lockstep::test {

struct BatchNormResult {
  std::vector<double> y;               // (rows, channels)
  std::vector<double> mean, variance;  // (channels)
};

// y with these statistics. delta may be empty.
inline std::vector<double> batch_norm_output(const std::vector<double>& x,
                                             const std::vector<double>& delta,
                                             const std::vector<double>& gamma,
                                             const std::vector<double>& beta,
                                             const std::vector<double>& mean,
                                             const std::vector<double>& variance,
                                             double epsilon,
                                             bool relu) {
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i % gamma.size();
    y[i] = (x[i] - mean[c]) / std::sqrt(variance[c] + epsilon) * gamma[c] + beta[c] +
           (delta.empty() ? 0 : delta[i]);
    if (relu) y[i] = std::max(y[i], 0.0);
  }
  return y;
}

// delta may be empty.
inline BatchNormResult batch_norm_forward(const std::vector<double>& x,
                                          const std::vector<double>& delta,
                                          const std::vector<double>& gamma,
                                          const std::vector<double>& beta,
                                          double epsilon,
                                          bool relu) {
  const size_t channels = gamma.size(), rows = x.size() / channels;
  BatchNormResult result{{}, std::vector<double>(channels), std::vector<double>(channels)};
  for (size_t i = 0; i < x.size(); ++i)
    result.mean[i % channels] += x[i] / static_cast<double>(rows);
  for (size_t i = 0; i < x.size(); ++i)
    result.variance[i % channels] +=
        std::pow(x[i] - result.mean[i % channels], 2) / static_cast<double>(rows);
  result.y = batch_norm_output(x, delta, gamma, beta, result.mean, result.variance, epsilon, relu);
  return result;
}

struct BatchNormGradients {
  std::vector<double> d_x, d_delta;     // (rows, channels)
  std::vector<double> d_gamma, d_beta;  // (channels)
};

// From g, the gradient that the activation passed, with these statistics.
inline BatchNormGradients batch_norm_gradients(const std::vector<double>& g,
                                               const std::vector<double>& x,
                                               const std::vector<double>& gamma,
                                               const std::vector<double>& mean,
                                               const std::vector<double>& variance,
                                               double epsilon) {
  const size_t channels = gamma.size();
  const auto m = static_cast<double>(x.size() / channels);
  BatchNormGradients result{std::vector<double>(x.size()),
                            g,
                            std::vector<double>(channels),
                            std::vector<double>(channels)};
  const auto xhat = [&](size_t i) {
    const size_t c = i % channels;
    return (x[i] - mean[c]) / std::sqrt(variance[c] + epsilon);
  };
  for (size_t i = 0; i < x.size(); ++i) {
    result.d_beta[i % channels] += g[i];
    result.d_gamma[i % channels] += g[i] * xhat(i);
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i % channels;
    result.d_x[i] = gamma[c] / std::sqrt(variance[c] + epsilon) *
                    (g[i] - result.d_beta[c] / m - xhat(i) * result.d_gamma[c] / m);
  }
  return result;
}

inline BatchNormGradients batch_norm_backward(const std::vector<double>& d_y,
                                              const std::vector<double>& x,
                                              const std::vector<double>& delta,
                                              const std::vector<double>& gamma,
                                              const std::vector<double>& beta,
                                              double epsilon,
                                              bool relu) {
  const BatchNormResult forward = batch_norm_forward(x, delta, gamma, beta, epsilon, relu);
  std::vector<double> g = d_y;
  for (size_t i = 0; relu && i < g.size(); ++i) {
    if (!(forward.y[i] > 0)) g[i] = 0;
  }
  return batch_norm_gradients(g, x, gamma, forward.mean, forward.variance, epsilon);
}

}  // namespace lockstep::test
