// Catches: gate and up changed for one another, a derivative taken of the wrong one of them, a gate
// that is overwritten before its derivative is taken, NaN swallowed, overflow for huge gates,
// elements lost at the ends of rows and where they are misaligned.
#include "runtime/graph/ops/gated_activation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"
#include "tests/reference/activations.h"

namespace lockstep::test {
namespace {

void reference_forward(const graph::OpCall& call) {
  const graph::GatedActivationForward<double> op{call};
  for (int64_t row = 0; row < op.rows; ++row) {
    const double *gate = op.x + row * 2 * op.columns, *up = gate + op.columns;
    for (int64_t c = 0; c < op.columns; ++c)
      op.y[row * op.columns + c] = activation_value(op.activation, gate[c]) * up[c];
  }
}

void reference_backward(const graph::OpCall& call) {
  const graph::GatedActivationBackward<double> op{call};
  for (int64_t row = 0; row < op.rows; ++row) {
    const double *gate = op.x + row * 2 * op.columns, *up = gate + op.columns;
    for (int64_t c = 0; c < op.columns; ++c) {
      const double d_y = op.d_y[row * op.columns + c];
      double* const d_gate = op.d_x + row * 2 * op.columns + c;
      const double d_up = d_y * activation_value(op.activation, gate[c]);
      d_gate[0] = d_y * up[c] * activation_derivative(op.activation, gate[c]);
      d_gate[op.columns] = d_up;
    }
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kGatedActivation, "double", reference_forward},
    {graph::OpKind::kGatedActivationBackward, "double", reference_backward},
};

// Of an activation and of its derivative as in activation_test.cc, times the other factors, with a
// rounding more for each of these.
Tolerance tolerance(const graph::OpCall& expected, graph::OutputName, int64_t i) {
  const auto value_error = [](double value) { return 5 * std::max(1.0, std::abs(value)); };
  if (expected.kind() == graph::OpKind::kGatedActivation) {
    const graph::GatedActivationForward<double> op{expected};
    const double* const gate = op.x + i / op.columns * 2 * op.columns + i % op.columns;
    const double value = activation_value(op.activation, *gate);
    return {value_error(value) * std::abs(gate[op.columns]), std::abs(op.y[i])};
  }
  const graph::GatedActivationBackward<double> op{expected};
  const int64_t row = i / (2 * op.columns), column = i % op.columns;
  const double d_y = std::abs(op.d_y[row * op.columns + column]);
  const double* const gate = op.x + row * 2 * op.columns + column;
  const bool is_gate = i % (2 * op.columns) < op.columns;
  const double floats = is_gate ? 33 * std::abs(gate[op.columns])
                                : value_error(activation_value(op.activation, *gate));
  return {floats * d_y, std::abs(op.d_x[i])};
}

OpTest gated_activation(Activation activation, int64_t rows, int64_t columns) {
  return {.name = "gated_activation " + std::to_string(static_cast<int>(activation)) + " (" +
                  std::to_string(rows) + ", " + std::to_string(columns) + ")",
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId x = builder.activation_tensor("x", {rows, 2 * columns});
                ops::gated_activation(builder, "y", x, activation);
              },
          .reference = kReference,
          .cpu = cpu::kCpuGatedActivation,
          .cuda = cuda::kCudaGatedActivation,
          .tolerance = tolerance,
          .low = -9,
          .high = 9};
}

class GatedActivationTest : public testing::TestWithParam<Activation> {};
INSTANTIATE_TEST_SUITE_P(All,
                         GatedActivationTest,
                         testing::Values(Activation::kNone,
                                         Activation::kRelu,
                                         Activation::kGeluTanh,
                                         Activation::kGeluErf,
                                         Activation::kSilu,
                                         Activation::kTanh,
                                         Activation::kRelu6));

TEST_P(GatedActivationTest, ReferenceMatchesFiniteDifferences) {
  OpTest test = gated_activation(GetParam(), 4, 15);
  // Keeps off the kinks at 0 and 6.
  test.value = [](const std::string&, int64_t i) { return -6.05 + 0.1 * static_cast<double>(i); };
  check_gradient_of_reference(test);
}

TEST_P(GatedActivationTest, MatchesTheReferenceOnAllDevices) {
  for (const int64_t columns : {1, 15, 16, 17, 72})
    check_on_all_devices(gated_activation(GetParam(), 3, columns));
  check_on_all_devices(gated_activation(GetParam(), 1, 520));
}

TEST_P(GatedActivationTest, LosesNoRowsBetweenThreadsAndBlocks) {
  check_on_all_devices(gated_activation(GetParam(), 517, 8));
  OpTest many = gated_activation(GetParam(), 701, 101);  // several grains of work, odd
  many.cuda = {};
  check_on_all_devices(many);
}

TEST_P(GatedActivationTest, HugeInputs) {
  OpTest test = gated_activation(GetParam(), 2, 2);
  test.value = [](const std::string& tensor, int64_t i) {
    constexpr double kRows[] = {1e30, -1e30, 0.5, 1, 100, -100, 0.5, 1};  // gates, ups
    return tensor == "x" ? kRows[i] : 1;
  };
  test.cuda = {};  // they do not fit in 16 bits
  check_on_all_devices(test);
}

// A diverged run must show, whether the gate or what it lets through is NaN.
TEST_P(GatedActivationTest, HidesNoNaN) {
  OpTest test = gated_activation(GetParam(), 2, 9);  // a row's last one alone, not in a vector
  test.value = [](const std::string& tensor, int64_t i) {
    return tensor == "x" && (i == 3 || i == 8 || i == 23 || i == 35) ? std::nan("") : 0.5;
  };
  check_on_all_devices(test);
}

}  // namespace
}  // namespace lockstep::test
