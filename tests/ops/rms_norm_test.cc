// Catches: a wrong gradient term, the residual addition or its gradient left out, parameter
// gradients that lose rows at block borders, rows or columns lost at the borders of vectors, warps
// and blocks, a missing barrier.
#include "runtime/graph/ops/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

void reference_forward(const graph::OpCall& call) {
  const graph::RmsNormForward<double> op{call};
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t begin = row * op.columns;
    const auto sum = [&](int64_t c) {
      return op.x[begin + c] + (op.delta != nullptr ? op.delta[begin + c] : 0);
    };
    double squares = 0;
    for (int64_t c = 0; c < op.columns; ++c) squares += sum(c) * sum(c);
    op.rstd[row] = 1 / std::sqrt(squares / static_cast<double>(op.columns) + op.epsilon);
    for (int64_t c = 0; c < op.columns; ++c) {
      op.y[begin + c] = sum(c) * op.rstd[row] * op.gamma[c];
      if (op.sum != nullptr) op.sum[begin + c] = sum(c);
    }
  }
}

void reference_backward(const graph::OpCall& call) {
  const graph::RmsNormBackward<double> op{call};
  for (int64_t c = 0; c < op.columns; ++c) op.d_gamma[c] = 0;
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t begin = row * op.columns;
    const auto xhat = [&](int64_t c) { return op.sum[begin + c] * op.rstd[row]; };
    double mean = 0;  // of g xhat
    for (int64_t c = 0; c < op.columns; ++c)
      mean += op.d_y[begin + c] * op.gamma[c] * xhat(c) / static_cast<double>(op.columns);
    for (int64_t c = 0; c < op.columns; ++c) {
      const double g = op.d_y[begin + c] * op.gamma[c];
      op.d_gamma[c] += op.d_y[begin + c] * xhat(c);
      op.d_sum[begin + c] = op.rstd[row] * (g - xhat(c) * mean) +
                            (op.d_residual != nullptr ? op.d_residual[begin + c] : 0);
    }
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kRmsNorm, "double", reference_forward},
    {graph::OpKind::kRmsNormBackward, "double", reference_backward},
};

// Of a sum of n floats in 16 lanes or more: a lane's error grows with its length.
double sum_error(int64_t n) { return 4 + static_cast<double>(n) / 64; }

// Inputs are below 1 in size (sums below 2), so that xhat is below 2 rstd.
Tolerance tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t i) {
  if (expected.kind() == graph::OpKind::kRmsNorm) {
    const graph::RmsNormForward<double> op{expected};
    const double sum_rounded = op.delta != nullptr ? 1 : 0, sums = sum_error(op.columns);
    if (output == graph::RmsNormOut::kY) {
      const double y = std::abs(op.y[i]), slope = 2 * op.rstd[i / op.columns];
      return {sums * y, y + sum_rounded * (y + slope)};
    }
    if (output == graph::RmsNormOut::kSum) return {1, std::abs(op.sum[i])};
    return {sums * op.rstd[i], sum_rounded * op.rstd[i]};
  }
  const graph::RmsNormBackward<double> op{expected};
  if (output == graph::RmsNormBackwardOut::kDSum) {
    const double rstd = op.rstd[i / op.columns], xhat = 2 * rstd;
    return {sum_error(op.columns) * (1 + rstd * (1 + xhat * xhat)), std::abs(op.d_sum[i])};
  }
  double terms = 0;  // of d_gamma, by size
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t at = row * op.columns + i;
    terms += std::abs(op.d_y[at] * op.sum[at] * op.rstd[row]);
  }
  return {(2 + static_cast<double>(op.rows) / 8) * terms, 0};
}

OpTest rms_norm(int64_t rows, int64_t columns, bool residual) {
  return {.name = "rms_norm (" + std::to_string(rows) + ", " + std::to_string(columns) + ")" +
                  (residual ? " of a sum" : ""),
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId x = builder.activation_tensor("x", {rows, columns});
                const TensorId delta =
                    residual ? builder.activation_tensor("delta", {rows, columns}) : kNoTensor;
                const TensorId gamma = builder.parameter("gamma", {columns}, {}, false);
                ops::rms_norm(builder, "norm", x, delta, gamma, 1e-5f);
              },
          .reference = kReference,
          .cpu = cpu::kCpuRmsNorm,
          .cuda = cuda::kCudaRmsNorm,
          .tolerance = tolerance,
          .gradients = 2};
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
  check_on_all_devices(rms_norm(2053, 8, true));
}

}  // namespace
}  // namespace lockstep::test
