// Catches: a wrong gradient term, variance by cancellation, the residual addition or its gradient
// left out, parameter gradients that lose rows at block borders, rows or columns lost at the borders
// of vectors, warps and blocks, a missing barrier.
#include "runtime/graph/ops/layer_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

void reference_forward(const graph::OpCall& call) {
  const graph::LayerNormForward<double> op{call};
  const auto columns = static_cast<double>(op.columns);
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t begin = row * op.columns;
    const auto sum = [&](int64_t c) {
      return op.x[begin + c] + (op.delta != nullptr ? op.delta[begin + c] : 0);
    };
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < op.columns; ++c) mean += sum(c) / columns;
    for (int64_t c = 0; c < op.columns; ++c) variance += std::pow(sum(c) - mean, 2) / columns;
    op.mean[row] = mean;
    op.rstd[row] = 1 / std::sqrt(variance + op.epsilon);
    for (int64_t c = 0; c < op.columns; ++c) {
      op.y[begin + c] =
          (sum(c) - mean) * op.rstd[row] * op.gamma[c] + (op.beta != nullptr ? op.beta[c] : 0);
      if (op.sum != nullptr) op.sum[begin + c] = sum(c);
    }
  }
}

void reference_backward(const graph::OpCall& call) {
  const graph::LayerNormBackward<double> op{call};
  const auto columns = static_cast<double>(op.columns);
  for (int64_t c = 0; c < op.columns; ++c) {
    op.d_gamma[c] = 0;
    if (op.d_beta != nullptr) op.d_beta[c] = 0;
  }
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t begin = row * op.columns;
    const auto g = [&](int64_t c) { return op.d_y[begin + c] * op.gamma[c]; };
    const auto xhat = [&](int64_t c) { return (op.sum[begin + c] - op.mean[row]) * op.rstd[row]; };
    double g_mean = 0, g_xhat_mean = 0;
    for (int64_t c = 0; c < op.columns; ++c) {
      g_mean += g(c) / columns;
      g_xhat_mean += g(c) * xhat(c) / columns;
    }
    for (int64_t c = 0; c < op.columns; ++c) {
      const double d_y = op.d_y[begin + c];
      op.d_gamma[c] += d_y * xhat(c);
      if (op.d_beta != nullptr) op.d_beta[c] += d_y;
      op.d_sum[begin + c] = op.rstd[row] * (g(c) - g_mean - xhat(c) * g_xhat_mean) +
                            (op.d_residual != nullptr ? op.d_residual[begin + c] : 0);
    }
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kLayerNorm, "double", reference_forward},
    {graph::OpKind::kLayerNormBackward, "double", reference_backward},
};

// Inputs lie in [1, 3), a mean of two standard deviations and more: cancellation would show. The
// mean of a sum (up to 6) is a sum in 16 lanes or more: a lane's error grows with its length. It
// moves every xhat by error * rstd.
constexpr double kLow = 1, kHigh = 3;

double sum_error(int64_t n) { return 6 + static_cast<double>(n) / 64; }

Tolerance tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t i) {
  if (expected.kind() == graph::OpKind::kLayerNorm) {
    const graph::LayerNormForward<double> op{expected};
    const double sums = 6 * sum_error(op.columns);
    // Of x + delta, up to 6, rounded to what is stored; where there is one.
    const double rounded = op.delta != nullptr ? 6 : 0;
    if (output == graph::LayerNormOut::kY) {
      const double y = std::abs(op.y[i]), rstd = op.rstd[i / op.columns];
      const double slope = 3 * rstd * (1 + y);  // of y, by x
      return {sums * (1 + y + slope), y + rounded * slope};
    }
    if (output == graph::LayerNormOut::kSum) return {1, std::abs(op.sum[i])};
    if (output == graph::LayerNormOut::kMean) return {sums, rounded};
    const double slope = op.rstd[i] * (1 + op.rstd[i]);
    return {sums * slope, rounded * slope};
  }
  const graph::LayerNormBackward<double> op{expected};
  const double sums = sum_error(op.columns);
  if (output == graph::LayerNormBackwardOut::kDSum) {
    // g is below 9. xhat is wrong by its mean's error, and enters d_sum twice, with rstd.
    const double rstd = op.rstd[i / op.columns], slope = (1 + rstd) * (1 + 4 * rstd);
    return {30 * sums * slope * std::max(1.0, slope / 50), std::abs(op.d_sum[i])};
  }
  if (output == graph::LayerNormBackwardOut::kDGamma) {
    double terms = 0;
    for (int64_t row = 0; row < op.rows; ++row) terms += 3 * (1 + 6 * op.rstd[row]);
    return {(sums + static_cast<double>(op.rows) / 8) * terms, 0};
  }
  return {(1 + static_cast<double>(op.rows) / 2) * std::abs(op.d_beta[i]), 0};
}

OpTest layer_norm(int64_t rows, int64_t columns, bool residual, bool with_beta) {
  return {.name = "layer_norm (" + std::to_string(rows) + ", " + std::to_string(columns) + ")" +
                  (residual ? " of a sum" : "") + (with_beta ? " with beta" : ""),
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId x = builder.activation_tensor("x", {rows, columns});
                const TensorId delta =
                    residual ? builder.activation_tensor("delta", {rows, columns}) : kNoTensor;
                const TensorId gamma = builder.parameter("gamma", {columns}, {}, false);
                const TensorId beta =
                    with_beta ? builder.parameter("beta", {columns}, {}, false) : kNoTensor;
                ops::layer_norm(builder, "norm", x, delta, gamma, beta);
              },
          .reference = kReference,
          .cpu = cpu::kCpuLayerNorm,
          .cuda = cuda::kCudaLayerNorm,
          .tolerance = tolerance,
          .gradients = 2,
          .low = kLow,
          .high = kHigh};
}

TEST(LayerNormTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(layer_norm(3, 5, false, true));
  check_gradient_of_reference(layer_norm(3, 5, true, true));
}

TEST(LayerNormTest, MatchesTheReferenceOnAllDevices) {
  for (const int64_t columns : {1, 15, 17, 64, 72, 771, 1003}) {
    check_on_all_devices(layer_norm(5, columns, false, true));
    check_on_all_devices(layer_norm(5, columns, true, true));
    check_on_all_devices(layer_norm(1, columns, true, false));
  }
}

TEST(LayerNormTest, LongRowsTakeAWholeBlock) {
  check_on_all_devices(layer_norm(2, 2048, false, true));
  OpTest beyond_odd_rows = layer_norm(2, 2304, true, true);
  beyond_odd_rows.any_address = false;  // single elements would not fit in registers
  check_on_all_devices(beyond_odd_rows);
}

TEST(LayerNormTest, GradientsOfParametersLoseNoRowsAtTheBordersOfBlocks) {
  check_on_all_devices(layer_norm(2053, 8, true, true));
}

// Not NaN, nor what cancellation leaves times 1 / sqrt(epsilon).
TEST(LayerNormTest, RowsOfEqualElementsGiveBeta) {
  OpTest equal = layer_norm(1, 40, false, true);
  equal.low = equal.high = 3.5;
  equal.gradients = 0;
  equal.tolerance = [](const graph::OpCall&, graph::OutputName output, int64_t) {
    // rstd is some 316; the rest is exact, but for the reference's own rounding.
    return Tolerance{output == graph::LayerNormOut::kRstd ? 800 : 1e-3, 0};
  };
  check_on_all_devices(equal);
}

}  // namespace
}  // namespace lockstep::test
