#pragma once
// What the tests of batch norm share: the reference's table, what floats may be off by, and a norm
// with its backward pass.

#include <cmath>
#include <functional>
#include <string>

#include "runtime/base/rng.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"
#include "tests/reference/batch_norm.h"
#include "tests/reference/kernel_test.h"

namespace lockstep::test {

template <typename Op, void (*kRun)(const Op&)>
void run_batch_norm(const graph::OpCall& call) {
  kRun(Op{call});
}

inline void batch_norm_running(const graph::OpCall& call) {
  const graph::BatchNormRunning<double> op{call};
  const auto rows = static_cast<double>(op.rows);
  for (int64_t c = 0; c < op.channels; ++c) {
    op.d_running_mean[c] = op.mean[c];
    op.d_running_variance[c] = op.rows > 1 ? op.variance[c] * rows / (rows - 1) : op.variance[c];
  }
}

// The lanes are gathered by the executor: what it would write is an input here.
inline constexpr exec::Implementation kBatchNormReference[] = {
    {graph::OpKind::kBatchNorm,
     "double",
     run_batch_norm<graph::BatchNormForward<double>, batch_norm_forward>},
    {graph::OpKind::kBatchNormBackward,
     "double",
     run_batch_norm<graph::BatchNormBackward<double>, batch_norm_backward>},
    {graph::OpKind::kBatchStatistics,
     "double",
     run_batch_norm<graph::BatchStatistics<double>, batch_statistics>},
    {graph::OpKind::kBatchNormSums,
     "double",
     run_batch_norm<graph::BatchNormSums<double>, batch_norm_sums>},
    {graph::OpKind::kBatchNormRunning, "double", batch_norm_running},
    {graph::OpKind::kBatchNormInputGradient,
     "double",
     run_batch_norm<graph::BatchNormInputGradient<double>, batch_norm_input_gradient>},
};

// ---- What floats may be off by ----

// Parts are summed in float, from distances below 4: a part's error is some units of that.
inline Tolerance of_mean(double mean) { return {8 + std::abs(mean), 0}; }
// Parts' means may be rounded before they meet, and lie some part of a deviation apart.
inline Tolerance of_variance(double mean, double variance) {
  return {64 * (variance + kEps) + std::abs(mean) * std::sqrt(variance) / 8, 0};
}

// The mean's last bits move every y by gamma rstd of them, the variance's by xhat.
inline Tolerance of_y(const graph::BatchNormForward<double>& op, int64_t i) {
  const int64_t c = i % op.channels;
  const bool training = op.mean != nullptr;
  const double mean = training ? op.mean[c] : stored(op.running_mean[c]);
  const double variance = training ? op.variance[c] : stored(op.running_variance[c]);
  const double rstd = rstd_of(variance, op.epsilon), xhat = std::abs(op.x[i] - mean) * rstd;
  const double of_statistics = training ? 2 * (8 + std::abs(mean)) * rstd + 48 * xhat : 0;
  return {8 * (2 + xhat) + of_statistics, std::abs(op.y[i])};
}

// Where the activation's input is too near to zero, both answers are right. What a channel's sum of
// |d_y| has of such elements.
inline double doubtful(const graph::BatchNormGradientInputs<double>& in, int64_t c) {
  double sum = 0;
  if (!in.relu || in.y != nullptr || in.mask != nullptr) return sum;
  for (int64_t i = c; i < in.rows * in.channels; i += in.channels) {
    const double error = 8 * kEps * (2 + std::abs(xhat_at(in, i)));
    if (std::abs(activated_at(in, i)) < error) sum += std::abs(d_y_at(in, i));
  }
  return sum;
}

// No gradient is above this.
inline double largest(const graph::BatchNormGradientInputs<double>& in) {
  return in.d_y2 != nullptr ? 2 : 1;
}

// Sums over rows of gradients and of g xhat are some `rows` times the largest at most.
inline Tolerance of_sum(const graph::BatchNormGradientInputs<double>& in, int64_t c) {
  return {4 * largest(in) * static_cast<double>(in.rows) + 4 * doubtful(in, c) / kEps, 0};
}

inline Tolerance of_d_x(const graph::BatchNormGradientInputs<double>& in,
                        const double* d_x,
                        int64_t i) {
  const int64_t c = i % in.channels;
  const double rstd = rstd_at(in, c);
  return {rstd * (16 * largest(in) * (1 + std::abs(xhat_at(in, i))) + 4 * doubtful(in, c) / kEps),
          std::abs(d_x[i])};
}

// A bit is doubtful if what the activation is given is too near to zero.
inline Tolerance of_mask(const graph::BatchNormForward<double>& op, int64_t byte) {
  double doubtful_bits = 0;
  for (int64_t bit = 0; bit < 8; ++bit) {
    const int64_t i = 8 * byte + bit;
    if (std::abs(pre_activation_at(op, i)) < kEps * of_y(op, i).floats)
      doubtful_bits += static_cast<double>(1 << bit);
  }
  return {doubtful_bits / kEps, 0};
}

inline Tolerance of_parameter(const graph::BatchNormGradientInputs<double>& in,
                              graph::OutputName output,
                              int64_t c) {
  if (output == graph::BatchNormBackwardOut::kDGamma ||
      output == graph::BatchNormBackwardOut::kDBeta)
    return of_sum(in, c);
  if (output == graph::BatchNormBackwardOut::kDRunningVariance) return {8 * in.variance[c], 0};
  return {0, 0};  // d_delta and d_running_mean, which are copies
}

inline Tolerance batch_norm_tolerance(const graph::OpCall& expected,
                                      graph::OutputName output,
                                      int64_t i) {
  switch (expected.kind()) {
    case graph::OpKind::kBatchNorm: {
      const graph::BatchNormForward<double> op{expected};
      if (output == graph::BatchNormOut::kY) return of_y(op, i);
      if (output == graph::BatchNormOut::kMask) return of_mask(op, i);
      return output == graph::BatchNormOut::kMean ? of_mean(op.mean[i])
                                                  : of_variance(op.mean[i], op.variance[i]);
    }
    case graph::OpKind::kBatchStatistics: {
      const graph::BatchStatistics<double> op{expected};
      return i < op.channels ? of_mean(op.statistics[i])
                             : of_variance(op.statistics[i - op.channels], op.statistics[i]);
    }
    case graph::OpKind::kBatchNormSums: {
      const graph::BatchNormSums<double> op{expected};
      return output == graph::BatchNormBackwardOut::kSums ? of_sum(op.in, i % op.in.channels)
                                                          : of_parameter(op.in, output, i);
    }
    case graph::OpKind::kBatchNormInputGradient: {
      const graph::BatchNormInputGradient<double> op{expected};
      return of_d_x(op.in, op.d_x, i);
    }
    default: {
      const graph::BatchNormBackward<double> op{expected};
      return output == graph::BatchNormBackwardOut::kDX ? of_d_x(op.in, op.d_x, i)
                                                        : of_parameter(op.in, output, i);
    }
  }
}

// ---- The cases ----

struct BatchNormCase {
  int64_t rows, channels;
  bool delta = false, relu = false;
  double centre = 0;  // of x
  int lanes = 1;
};

inline double uniform(const std::string& tensor, int64_t i, double low, double high) {
  const RngStream stream{.seed = std::hash<std::string>()(tensor), .purpose = kRngSynthetic};
  return low + (high - low) * uniform_from_word(philox_word(stream, static_cast<uint64_t>(i)));
}

inline double batch_norm_value(const BatchNormCase& at, const std::string& tensor, int64_t i) {
  if (tensor == "x") return uniform(tensor, i, at.centre - 2, at.centre + 1);
  if (tensor == "gamma") return uniform(tensor, i, 0.5, 1.5);
  const bool variance =
      tensor == "running_variance" || (tensor == "norm.lanes" && i / at.channels % 2 == 1);
  return variance ? uniform(tensor, i, 0.5, 2) : uniform(tensor, i, -1, 1);
}

inline OpTest batch_norm(const BatchNormCase& at) {
  return {.name = "batch_norm (" + std::to_string(at.rows) + ", " + std::to_string(at.channels) +
                  (at.delta ? ") of a sum" : ")") + (at.relu ? ", relu" : "") + ", " +
                  std::to_string(at.lanes) + " lanes",
          .build =
              [=](graph::GraphBuilder& builder) {
                const Shape shape = {at.rows, at.channels}, channels = {at.channels};
                const TensorId x = builder.activation_tensor("x", shape);
                const TensorId delta =
                    at.delta ? builder.activation_tensor("delta", shape) : kNoTensor;
                const ops::BatchNormParameters parameters = {
                    builder.parameter("gamma", channels, {}, false),
                    builder.parameter("beta", channels, {}, false),
                    builder.running_statistic("running_mean", channels, 0, 0.1f),
                    builder.running_statistic("running_variance", channels, 1, 0.1f)};
                graph::BatchNormAttributes attributes;
                attributes.activation = at.relu ? Activation::kRelu : Activation::kNone;
                attributes.synchronised = at.lanes > 1;
                ops::batch_norm(builder, "norm", x, delta, parameters, attributes);
              },
          .reference = kBatchNormReference,
          .cpu = cpu::kCpuBatchNorm,
          .cuda = cuda::kCudaBatchNorm,
          .tolerance = batch_norm_tolerance,
          .lanes = at.lanes,
          .value = [=](const std::string& tensor,
                       int64_t i) { return batch_norm_value(at, tensor, i); }};
}

}  // namespace lockstep::test
