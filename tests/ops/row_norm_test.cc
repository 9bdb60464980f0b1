// Catches: a wrong gradient term, variance by cancellation, a mean that rms_norm subtracts, the
// residual addition or its gradient left out, parameter gradients that lose rows at block borders,
// rows or columns lost at the borders of vectors, warps and blocks, a missing barrier.
#include "runtime/graph/ops/row_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

void reference_forward(const graph::OpCall& call) {
  const graph::RowNormForward<double> op{call};
  const bool centred = call.kind() == graph::OpKind::kLayerNorm;
  const auto columns = static_cast<double>(op.columns);
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t begin = row * op.columns;
    const auto sum = [&](int64_t c) {
      return op.x[begin + c] + (op.delta != nullptr ? op.delta[begin + c] : 0);
    };
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < op.columns && centred; ++c) mean += sum(c) / columns;
    for (int64_t c = 0; c < op.columns; ++c) variance += std::pow(sum(c) - mean, 2) / columns;
    if (centred) op.mean[row] = mean;
    op.rstd[row] = 1 / std::sqrt(variance + op.epsilon);
    for (int64_t c = 0; c < op.columns; ++c) {
      op.y[begin + c] =
          (sum(c) - mean) * op.rstd[row] * op.gamma[c] + (op.beta != nullptr ? op.beta[c] : 0);
      if (op.sum != nullptr) op.sum[begin + c] = sum(c);
    }
  }
}

void reference_backward(const graph::OpCall& call) {
  const graph::RowNormBackward<double> op{call};
  const bool centred = call.kind() == graph::OpKind::kLayerNormBackward;
  const auto columns = static_cast<double>(op.columns);
  for (int64_t c = 0; c < op.columns; ++c) {
    op.d_gamma[c] = 0;
    if (op.d_beta != nullptr) op.d_beta[c] = 0;
  }
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t begin = row * op.columns;
    const double mean = centred ? op.mean[row] : 0;
    const auto g = [&](int64_t c) { return op.d_y[begin + c] * op.gamma[c]; };
    const auto xhat = [&](int64_t c) { return (op.sum[begin + c] - mean) * op.rstd[row]; };
    double g_mean = 0, g_xhat_mean = 0;
    for (int64_t c = 0; c < op.columns; ++c) {
      if (centred) g_mean += g(c) / columns;
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
    {graph::OpKind::kRmsNorm, "double", reference_forward},
    {graph::OpKind::kRmsNormBackward, "double", reference_backward},
};

// append: appends the op of x, delta and gamma.
OpTest norm_of(
    const std::string& kind,
    int64_t rows,
    int64_t columns,
    bool residual,
    const std::function<void(graph::GraphBuilder&, TensorId, TensorId, TensorId)>& append,
    const decltype(OpTest::tolerance)& tolerance) {
  return {.name = kind + " (" + std::to_string(rows) + ", " + std::to_string(columns) + ")" +
                  (residual ? " of a sum" : ""),
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId x = builder.activation_tensor("x", {rows, columns});
                const TensorId delta =
                    residual ? builder.activation_tensor("delta", {rows, columns}) : kNoTensor;
                append(builder, x, delta, builder.parameter("gamma", {columns}, {}, false));
              },
          .reference = kReference,
          .cpu = cpu::kCpuRowNorm,
          .cuda = cuda::kCudaRowNorm,
          .tolerance = tolerance,
          .gradients = 2};
}

// ---- layer_norm ----

// Inputs lie in [1, 3), a mean of two standard deviations and more: cancellation would show. The
// mean of a sum (up to 6) is a sum in 16 lanes or more: a lane's error grows with its length. It
// moves every xhat by error * rstd.
double sum_error(int64_t n) { return 6 + static_cast<double>(n) / 64; }

Tolerance layer_norm_tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t i) {
  if (expected.kind() == graph::OpKind::kLayerNorm) {
    const graph::RowNormForward<double> op{expected};
    const double sums = 6 * sum_error(op.columns);
    // Of x + delta, up to 6, rounded to what is stored; where there is one.
    const double rounded = op.delta != nullptr ? 6 : 0;
    if (output == graph::RowNormOut::kY) {
      const double y = std::abs(op.y[i]), rstd = op.rstd[i / op.columns];
      const double slope = 3 * rstd * (1 + y);  // of y, by x
      return {sums * (1 + y + slope), y + rounded * slope};
    }
    if (output == graph::RowNormOut::kSum) return {1, std::abs(op.sum[i])};
    if (output == graph::RowNormOut::kMean) return {sums, rounded};
    const double slope = op.rstd[i] * (1 + op.rstd[i]);
    return {sums * slope, rounded * slope};
  }
  const graph::RowNormBackward<double> op{expected};
  const double sums = sum_error(op.columns);
  if (output == graph::RowNormBackwardOut::kDSum) {
    // g is below 9. xhat is wrong by its mean's error, and enters d_sum twice, with rstd.
    const double rstd = op.rstd[i / op.columns], slope = (1 + rstd) * (1 + 4 * rstd);
    return {30 * sums * slope * std::max(1.0, slope / 50), std::abs(op.d_sum[i])};
  }
  if (output == graph::RowNormBackwardOut::kDGamma) {
    double terms = 0;
    for (int64_t row = 0; row < op.rows; ++row) terms += 3 * (1 + 6 * op.rstd[row]);
    return {(sums + static_cast<double>(op.rows) / 8) * terms, 0};
  }
  return {(1 + static_cast<double>(op.rows) / 2) * std::abs(op.d_beta[i]), 0};
}

OpTest layer_norm(int64_t rows, int64_t columns, bool residual, bool with_beta) {
  const auto append =
      [=](graph::GraphBuilder& builder, TensorId x, TensorId delta, TensorId gamma) {
        const TensorId beta =
            with_beta ? builder.parameter("beta", {columns}, {}, false) : kNoTensor;
        ops::layer_norm(builder, "norm", x, delta, gamma, beta);
      };
  OpTest test = norm_of(with_beta ? "layer_norm with beta" : "layer_norm",
                        rows,
                        columns,
                        residual,
                        append,
                        layer_norm_tolerance);
  test.low = 1;
  test.high = 3;
  return test;
}

TEST(LayerNormTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(layer_norm(3, 5, false, true));
  check_gradient_of_reference(layer_norm(3, 5, true, true));
}

TEST(LayerNormTest, MatchesTheReferenceOnAllDevices) {
  for (const int64_t columns : {1, 7, 17, 64, 72, 768, 1003}) {
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
  check_on_all_devices(layer_norm(653, 8, true, true));
  check_on_all_devices(layer_norm(29, 1032, true, true));  // several warps a row
}

// Not NaN, nor what cancellation leaves times 1 / sqrt(epsilon).
TEST(LayerNormTest, RowsOfEqualElementsGiveBeta) {
  OpTest equal = layer_norm(1, 40, false, true);
  equal.low = equal.high = 3.5;
  equal.gradients = 0;
  equal.tolerance = [](const graph::OpCall&, graph::OutputName output, int64_t) {
    // rstd is some 316; the rest is exact, but for the reference's own rounding.
    return Tolerance{output == graph::RowNormOut::kRstd ? 800 : 1e-3, 0};
  };
  check_on_all_devices(equal);
}

// ---- rms_norm ----

// The error of a sum of n floats in 16 lanes or more: a lane's error grows with its length.
double squares_error(int64_t n) { return 4 + static_cast<double>(n) / 64; }

// Inputs are below 1 in size (sums below 2), so that xhat is below 2 rstd.
Tolerance rms_norm_tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t i) {
  if (expected.kind() == graph::OpKind::kRmsNorm) {
    const graph::RowNormForward<double> op{expected};
    const double sum_rounded = op.delta != nullptr ? 1 : 0, sums = squares_error(op.columns);
    if (output == graph::RowNormOut::kY) {
      const double y = std::abs(op.y[i]), slope = 2 * op.rstd[i / op.columns];
      return {sums * y, y + sum_rounded * (y + slope)};
    }
    if (output == graph::RowNormOut::kSum) return {1, std::abs(op.sum[i])};
    return {sums * op.rstd[i], sum_rounded * op.rstd[i]};
  }
  const graph::RowNormBackward<double> op{expected};
  if (output == graph::RowNormBackwardOut::kDSum) {
    const double rstd = op.rstd[i / op.columns], xhat = 2 * rstd;
    return {squares_error(op.columns) * (1 + rstd * (1 + xhat * xhat)), std::abs(op.d_sum[i])};
  }
  double terms = 0;  // of d_gamma, by size
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t at = row * op.columns + i;
    terms += std::abs(op.d_y[at] * op.sum[at] * op.rstd[row]);
  }
  return {(2 + static_cast<double>(op.rows) / 8) * terms, 0};
}

OpTest rms_norm(int64_t rows, int64_t columns, bool residual) {
  const auto append = [](graph::GraphBuilder& builder, TensorId x, TensorId delta, TensorId gamma) {
    ops::rms_norm(builder, "norm", x, delta, gamma, 1e-5f);
  };
  return norm_of("rms_norm", rows, columns, residual, append, rms_norm_tolerance);
}

TEST(RmsNormTest, ReferenceMatchesFiniteDifferences) {
  for (const bool residual : {false, true}) check_gradient_of_reference(rms_norm(3, 5, residual));
}

TEST(RmsNormTest, MatchesTheReferenceOnAllDevices) {
  for (const int64_t columns : {1, 15, 17, 64, 72, 771}) {
    for (const bool residual : {false, true}) check_on_all_devices(rms_norm(5, columns, residual));
  }
}

TEST(RmsNormTest, LongRowsTakeAWholeBlock) {
  check_on_all_devices(rms_norm(2, 2048, false));
  OpTest beyond_odd_rows = rms_norm(2, 2304, true);
  beyond_odd_rows.any_address = false;  // single elements would not fit in registers
  check_on_all_devices(beyond_odd_rows);
}

TEST(RmsNormTest, GradientsOfGammaLoseNoRowsAtTheBordersOfBlocks) {
  check_on_all_devices(rms_norm(653, 8, true));
  check_on_all_devices(rms_norm(29, 1032, true));
}

}  // namespace
}  // namespace lockstep::test
