// Catches: a wrong formula or constant, loss of accuracy anywhere on the line, overflow for huge
// inputs, NaN swallowed, elements lost at the end of an array or where it is misaligned.
#include "runtime/graph/ops/activation.h"

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
  const graph::ActivationForward<double> op{call};
  for (int64_t i = 0; i < op.n; ++i) op.y[i] = activation_value(op.activation, op.x[i]);
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kActivation, "double", reference_forward},
    {graph::OpKind::kActivationBackward, "double", activation_backward_reference},
};

// Each value is a few operations on factors of magnitude |x| at most: exp (2 ulp), division and the
// product; the derivative multiplies more such factors, and 1 - y^2 is absolute to 1.
Tolerance tolerance(const graph::OpCall& expected, graph::OutputName, int64_t i) {
  if (expected.kind() == graph::OpKind::kActivation) {
    const double y = std::abs(graph::ActivationForward<double>{expected}.y[i]);
    return {4 * std::max(1.0, y), y};
  }
  const graph::ActivationBackward<double> op{expected};
  return {32 * std::abs(op.d_y[i]), std::abs(op.d_x[i])};
}

OpTest activation_test(Activation activation, int64_t n) {
  return {.name = "activation " + std::to_string(static_cast<int>(activation)) + " of " +
                  std::to_string(n),
          .build =
              [=](graph::GraphBuilder& builder) {
                ops::activation(builder, "y", builder.activation_tensor("x", {n}), activation);
              },
          .reference = kReference,
          .cpu = cpu::kCpuActivation,
          .cuda = cuda::kCudaActivation,
          .tolerance = tolerance,
          .low = -9,
          .high = 9};
}

class ActivationTest : public testing::TestWithParam<Activation> {};
INSTANTIATE_TEST_SUITE_P(All,
                         ActivationTest,
                         testing::Values(Activation::kNone,
                                         Activation::kRelu,
                                         Activation::kGeluTanh,
                                         Activation::kGeluErf,
                                         Activation::kSilu,
                                         Activation::kTanh,
                                         Activation::kRelu6));

TEST_P(ActivationTest, ReferenceMatchesFiniteDifferences) {
  OpTest test = activation_test(GetParam(), 120);
  // Keeps off the kink of ReLU at 0.
  test.value = [](const std::string&, int64_t i) { return -6.05 + 0.1 * static_cast<double>(i); };
  check_gradient_of_reference(test);
}

TEST_P(ActivationTest, MatchesTheReferenceOnAllDevices) {
  for (const int64_t n : {1, 15, 17, 1003}) check_on_all_devices(activation_test(GetParam(), n));
  OpTest many = activation_test(GetParam(), 70001);  // several grains of work, odd
  many.cuda = {};
  check_on_all_devices(many);
}

// From -8 to 8 in float steps of many sizes, also near zero. e^(-x^2/2) has a relative error of
// x^2/2 eps from rounding its argument, and the tanh form of GELU (2u)' x eps likewise: up to 100
// eps at
// |x| = 8.
TEST_P(ActivationTest, KeepsRelativeAccuracyInTheTailsOnTheCpu) {
  OpTest test = activation_test(GetParam(), 2048);
  test.cuda = {};
  test.gradients = 0;
  test.value = [](const std::string&, int64_t i) {
    return (i % 2 == 0 ? 8 : -8) * std::pow(0.97, static_cast<double>(i / 2));
  };
  test.tolerance = [](const graph::OpCall& expected, graph::OutputName, int64_t i) {
    const graph::ActivationForward<double> op{expected};
    return Tolerance{(5 + 1.5 * op.x[i] * op.x[i]) * std::abs(op.y[i]) + 1e-30, std::abs(op.y[i])};
  };
  check_on_all_devices(test);
}

TEST_P(ActivationTest, HugeInputs) {
  OpTest test = activation_test(GetParam(), 4);
  test.value = [](const std::string& tensor, int64_t i) {
    constexpr double kHuge[] = {1e30, -1e30, 100, -100};
    return tensor == "x" ? kHuge[i] : 1;
  };
  test.cuda = {};  // they do not fit in 16 bits
  check_on_all_devices(test);
}

// A diverged run must show.
TEST_P(ActivationTest, HidesNoNaN) {
  OpTest test = activation_test(GetParam(), 9);  // the last one alone, not in a vector
  test.value = [](const std::string& tensor, int64_t i) {
    return tensor == "x" && (i == 3 || i == 8) ? std::nan("") : 0.5;
  };
  check_on_all_devices(test);
}

}  // namespace
}  // namespace lockstep::test
