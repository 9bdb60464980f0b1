#pragma once
// The ops of batch norm in double precision.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "runtime/base/half.h"
#include "runtime/graph/ops/batch_norm.h"

namespace lockstep::test {

inline double rstd_of(double variance, float epsilon) { return 1 / std::sqrt(variance + epsilon); }

inline void find_statistics(
    int64_t rows, int64_t channels, const double* x, double* mean, double* variance) {
  std::fill_n(mean, channels, 0.0);
  std::fill_n(variance, channels, 0.0);
  for (int64_t i = 0; i < rows * channels; ++i)
    mean[i % channels] += x[i] / static_cast<double>(rows);
  for (int64_t i = 0; i < rows * channels; ++i)
    variance[i % channels] += std::pow(x[i] - mean[i % channels], 2) / static_cast<double>(rows);
}

inline void batch_statistics(const graph::BatchStatistics<double>& op) {
  find_statistics(op.rows, op.channels, op.x, op.statistics, op.statistics + op.channels);
}

inline void combine_lanes(const graph::BatchNormForward<double>& op) {
  const auto lanes = static_cast<double>(op.lanes);
  std::fill_n(op.mean, op.channels, 0.0);
  std::fill_n(op.variance, op.channels, 0.0);
  const auto each = [&](auto f) {
    for (int64_t lane = 0; lane < op.lanes; ++lane) {
      const double* const means = op.lane_statistics + lane * 2 * op.channels;
      for (int64_t c = 0; c < op.channels; ++c) f(c, means[c], means[op.channels + c]);
    }
  };
  each([&](int64_t c, double mean, double) { op.mean[c] += mean / lanes; });
  each([&](int64_t c, double mean, double variance) {
    op.variance[c] += (variance + std::pow(mean - op.mean[c], 2)) / lanes;
  });
}

// A running statistic beyond FP16's range is stored as infinity and read as its largest number.
inline double stored(double statistic) {
  return std::isinf(statistic) ? std::copysign(65504.0, statistic) : statistic;
}

// What the activation is given. op.x must not have been overwritten.
inline double pre_activation_at(const graph::BatchNormForward<double>& op, int64_t i) {
  const bool training = op.mean != nullptr;
  const int64_t c = i % op.channels;
  const double mean = training ? op.mean[c] : stored(op.running_mean[c]);
  const double variance = training ? op.variance[c] : stored(op.running_variance[c]);
  return (op.x[i] - mean) * rstd_of(variance, op.epsilon) * op.gamma[c] + op.beta[c] +
         (op.delta != nullptr ? op.delta[i] : 0);
}

// As a tensor of the type stores it.
inline double rounded(DType type, double value) {
  const auto number = static_cast<float>(value);
  switch (type) {
    case DType::kBF16: return to_float(round_to<BFloat16>(number));
    case DType::kF16: return to_float(round_to<Float16>(number));
    default: return number;
  }
}

inline void batch_norm_forward(const graph::BatchNormForward<double>& op) {
  const bool training = op.mean != nullptr;
  if (training && op.lanes > 0) combine_lanes(op);
  if (training && op.lanes == 0) find_statistics(op.rows, op.channels, op.x, op.mean, op.variance);
  const int64_t n = op.rows * op.channels;
  if (op.mask != nullptr) std::fill_n(op.mask, n / 8, uint8_t{0});
  for (int64_t i = 0; i < n; ++i) {
    const double y = pre_activation_at(op, i);
    op.y[i] = op.relu && y < 0 ? 0 : y;
    if (op.mask != nullptr && rounded(op.call.input_dtype(graph::BatchNormIn::kX), y) > 0)
      op.mask[i / 8] |= static_cast<uint8_t>(1 << i % 8);
  }
}

inline double rstd_at(const graph::BatchNormGradientInputs<double>& in, int64_t c) {
  return rstd_of(in.variance[c], in.epsilon);
}
inline double xhat_at(const graph::BatchNormGradientInputs<double>& in, int64_t i) {
  return (in.x[i] - in.mean[i % in.channels]) * rstd_at(in, i % in.channels);
}
// What the activation was given, where there was no delta.
inline double activated_at(const graph::BatchNormGradientInputs<double>& in, int64_t i) {
  return xhat_at(in, i) * in.gamma[i % in.channels] + in.beta[i % in.channels];
}
// The gradient of y. The sum of two is what an add would store.
inline double d_y_at(const graph::BatchNormGradientInputs<double>& in, int64_t i) {
  if (in.d_y2 == nullptr) return in.d_y[i];
  return rounded(in.call.input_dtype(graph::BatchNormBackwardIn::kDY), in.d_y[i] + in.d_y2[i]);
}
// What the activation passed of it.
inline double passed_at(const graph::BatchNormGradientInputs<double>& in, int64_t i) {
  const bool passed = !in.relu             ? true
                      : in.mask != nullptr ? (in.mask[i / 8] >> i % 8 & 1) != 0
                      : in.y != nullptr    ? in.y[i] > 0
                                           : activated_at(in, i) > 0;
  return passed ? d_y_at(in, i) : 0;
}

// `lanes`: how often as many rows as these mean and variance are of.
inline void sum_rows(const graph::BatchNormGradientInputs<double>& in,
                     int64_t lanes,
                     double* d_delta,
                     const graph::BatchNormParameterGradients<double>& to) {
  std::fill_n(to.d_gamma, in.channels, 0.0);
  std::fill_n(to.d_beta, in.channels, 0.0);
  for (int64_t i = 0; i < in.rows * in.channels; ++i) {
    const double g = passed_at(in, i);
    to.d_beta[i % in.channels] += g;
    to.d_gamma[i % in.channels] += g * xhat_at(in, i);
    if (d_delta != nullptr) d_delta[i] = g;
  }
  const auto rows = static_cast<double>(in.rows * lanes);
  for (int64_t c = 0; c < in.channels; ++c) {
    to.d_running_mean[c] = in.mean[c];
    to.d_running_variance[c] = in.variance[c] * (rows > 1 ? rows / (rows - 1) : 1);
  }
}

// From the sums of g and of g xhat over `rows` rows.
inline void input_gradient(const graph::BatchNormGradientInputs<double>& in,
                           int64_t rows,
                           const double* sums,
                           const double* products,
                           double* d_x) {
  const auto m = static_cast<double>(rows);
  for (int64_t i = 0; i < in.rows * in.channels; ++i) {
    const int64_t c = i % in.channels;
    d_x[i] = in.gamma[c] * rstd_at(in, c) *
             (passed_at(in, i) - sums[c] / m - xhat_at(in, i) * products[c] / m);
  }
}

inline void batch_norm_backward(const graph::BatchNormBackward<double>& op) {
  sum_rows(op.in, 1, op.d_delta, op.parameters);
  input_gradient(op.in, op.in.rows, op.parameters.d_beta, op.parameters.d_gamma, op.d_x);
}

inline void batch_norm_sums(const graph::BatchNormSums<double>& op) {
  sum_rows(op.in, op.lanes, op.d_delta, op.parameters);
  std::copy_n(op.parameters.d_beta, op.in.channels, op.sums);
  std::copy_n(op.parameters.d_gamma, op.in.channels, op.sums + op.in.channels);
}

inline void batch_norm_input_gradient(const graph::BatchNormInputGradient<double>& op) {
  const int64_t n = 2 * op.in.channels;
  std::vector<double> sums(static_cast<size_t>(n));
  for (int64_t i = 0; i < op.lanes * n; ++i) sums[static_cast<size_t>(i % n)] += op.all_sums[i];
  input_gradient(op.in, op.in.rows * op.lanes, sums.data(), sums.data() + op.in.channels, op.d_x);
}

}  // namespace lockstep::test
