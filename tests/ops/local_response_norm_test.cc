// Catches: a window shifted by a channel (even sizes), neighbours lost at the ends of a row or of a
// piece of it, a wrong gradient term.
#include "runtime/graph/ops/local_response_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

// s of one channel of a row.
double scale_of(const double* x,
                int64_t channels,
                int64_t c,
                const graph::LocalResponseNormAttributes& a) {
  double sum = 0;
  for (int64_t k = c - a.size / 2; k < c - a.size / 2 + a.size; ++k) {
    if (k >= 0 && k < channels) sum += x[k] * x[k];
  }
  return a.k + a.alpha / static_cast<double>(a.size) * sum;
}

void reference_forward(const graph::OpCall& call) {
  const graph::LocalResponseNormForward<double> op{call};
  for (int64_t i = 0; i < op.rows * op.channels; ++i) {
    const int64_t c = i % op.channels;
    op.y[i] = op.x[i] / std::pow(scale_of(op.x + i - c, op.channels, c, op.window), op.window.beta);
  }
}

void reference_backward(const graph::OpCall& call) {
  const graph::LocalResponseNormBackward<double> op{call};
  const graph::LocalResponseNormAttributes& a = op.window;
  std::fill_n(op.d_x, op.rows * op.channels, 0.0);
  for (int64_t i = 0; i < op.rows * op.channels; ++i) {
    const int64_t c = i % op.channels, row = i - c;
    const double s = scale_of(op.x + row, op.channels, c, a);
    op.d_x[i] += op.d_y[i] / std::pow(s, a.beta);
    const double factor = 2 * a.alpha * a.beta / static_cast<double>(a.size) * op.d_y[i] * op.x[i] /
                          std::pow(s, a.beta + 1.0);
    for (int64_t k = c - a.size / 2; k < c - a.size / 2 + a.size; ++k) {
      if (k >= 0 && k < op.channels) op.d_x[row + k] -= factor * op.x[row + k];
    }
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kLocalResponseNorm, "double", reference_forward},
    {graph::OpKind::kLocalResponseNormBackward, "double", reference_backward},
};

// Inputs are below 2; a power is an exponential of a logarithm.
Tolerance tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t i) {
  const double size = std::abs(expected.output<double>(output)[i]);
  return {expected.kind() == graph::OpKind::kLocalResponseNorm ? 16.0 : 32.0, size};
}

OpTest norm(int64_t rows, int64_t channels, const graph::LocalResponseNormAttributes& window) {
  return {.name = "local_response_norm of " + std::to_string(window.size) + " channels in (" +
                  std::to_string(rows) + ", " + std::to_string(channels) + ")",
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId x = builder.activation_tensor("x", {rows, channels});
                ops::local_response_norm(builder, "y", x, window);
              },
          .reference = kReference,
          .cpu = cpu::kCpuLocalResponseNorm,
          .cuda = cuda::kCudaLocalResponseNorm,
          .tolerance = tolerance,
          .low = -2,
          .high = 2};
}

const graph::LocalResponseNormAttributes kWindows[] = {
    {5, 0.5f, 0.75f, 2}, {4, 1.0f, 0.75f, 1}, {3, 0.7f, 0.5f, 1}, {1, 0.3f, 0.75f, 1}};

TEST(LocalResponseNormTest, ReferenceMatchesFiniteDifferences) {
  for (const auto& window : kWindows) check_gradient_of_reference(norm(2, 7, window));
}

TEST(LocalResponseNormTest, MatchesTheReferenceOnAllDevices) {
  for (const auto& window : kWindows) {
    for (const int64_t channels : {3, 64, 300, 600})
      check_on_all_devices(norm(3, channels, window));
  }
}

TEST(LocalResponseNormTest, ManyRowsAreSharedOutWithoutLoss) {
  check_on_all_devices(norm(700, 100, kWindows[0]));
}

}  // namespace
}  // namespace lockstep::test
