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

// delta may be empty.
inline BatchNormResult batch_norm_forward(const std::vector<double>& x,
                                          const std::vector<double>& delta,
                                          const std::vector<double>& gain,
                                          const std::vector<double>& bias,
                                          double epsilon,
                                          bool relu) {
  const size_t channels = gain.size(), rows = x.size() / channels;
  BatchNormResult result{
      std::vector<double>(x.size()), std::vector<double>(channels), std::vector<double>(channels)};
  for (size_t i = 0; i < x.size(); ++i)
    result.mean[i % channels] += x[i] / static_cast<double>(rows);
  for (size_t i = 0; i < x.size(); ++i)
    result.variance[i % channels] +=
        std::pow(x[i] - result.mean[i % channels], 2) / static_cast<double>(rows);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i % channels;
    const double xhat = (x[i] - result.mean[c]) / std::sqrt(result.variance[c] + epsilon);
    const double y = xhat * gain[c] + bias[c] + (delta.empty() ? 0 : delta[i]);
    result.y[i] = relu ? std::max(y, 0.0) : y;
  }
  return result;
}

struct BatchNormGradients {
  std::vector<double> d_x, d_delta;    // (rows, channels)
  std::vector<double> d_gain, d_bias;  // (channels)
};

inline BatchNormGradients batch_norm_backward(const std::vector<double>& d_y,
                                              const std::vector<double>& x,
                                              const std::vector<double>& delta,
                                              const std::vector<double>& gain,
                                              const std::vector<double>& bias,
                                              double epsilon,
                                              bool relu) {
  const size_t channels = gain.size(), rows = x.size() / channels;
  const BatchNormResult forward = batch_norm_forward(x, delta, gain, bias, epsilon, relu);
  BatchNormGradients result{std::vector<double>(x.size()),
                            std::vector<double>(x.size()),
                            std::vector<double>(channels),
                            std::vector<double>(channels)};
  const auto xhat = [&](size_t i) {
    const size_t c = i % channels;
    return (x[i] - forward.mean[c]) / std::sqrt(forward.variance[c] + epsilon);
  };
  for (size_t i = 0; i < x.size(); ++i) {
    const double g = relu && !(forward.y[i] > 0) ? 0 : d_y[i];
    result.d_delta[i] = g;
    result.d_bias[i % channels] += g;
    result.d_gain[i % channels] += g * xhat(i);
  }
  const auto m = static_cast<double>(rows);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i % channels;
    result.d_x[i] = gain[c] / std::sqrt(forward.variance[c] + epsilon) *
                    (result.d_delta[i] - result.d_bias[c] / m - xhat(i) * result.d_gain[c] / m);
  }
  return result;
}

}  // namespace lockstep::test
