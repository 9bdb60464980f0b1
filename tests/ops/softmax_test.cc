// Catches: overflow of large elements, a wrong gradient, columns lost at the borders of vectors,
// warps and blocks, rows that are no distribution but look like one.
#include "runtime/graph/ops/softmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

void reference_forward(const graph::OpCall& call) {
  const graph::SoftmaxForward<double> op{call};
  for (int64_t row = 0; row < op.rows; ++row) {
    const double* x = op.x + row * op.columns;
    double* y = op.y + row * op.columns;
    if (op.or_zero && std::all_of(x, x + op.columns, [](double value) { return value == -kInf; })) {
      std::fill_n(y, op.columns, 0.0);
      continue;
    }
    const double largest = *std::max_element(x, x + op.columns);
    double sum = 0;
    for (int64_t c = 0; c < op.columns; ++c) sum += std::exp(x[c] - largest);
    for (int64_t c = 0; c < op.columns; ++c)
      y[c] = op.log ? x[c] - largest - std::log(sum) : std::exp(x[c] - largest) / sum;
  }
}

void reference_backward(const graph::OpCall& call) {
  const graph::SoftmaxBackward<double> op{call};
  for (int64_t row = 0; row < op.rows; ++row) {
    const double *d_y = op.d_y + row * op.columns, *y = op.y + row * op.columns;
    double sum = 0;
    for (int64_t c = 0; c < op.columns; ++c) sum += op.log ? d_y[c] : d_y[c] * y[c];
    for (int64_t c = 0; c < op.columns; ++c)
      op.d_x[row * op.columns + c] = op.log ? d_y[c] - std::exp(y[c]) * sum : y[c] * (d_y[c] - sum);
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kSoftmax, "double", reference_forward},
    {graph::OpKind::kSoftmaxBackward, "double", reference_backward},
};

// A sum of n positive floats in 16 lanes or more, whose errors are of either sign.
double sum_error(int64_t n) { return 8 + static_cast<double>(n) / 64; }

Tolerance tolerance(const graph::OpCall& expected, graph::OutputName, int64_t i) {
  if (expected.kind() == graph::OpKind::kSoftmax) {
    const graph::SoftmaxForward<double> op{expected};
    const double y = std::abs(op.y[i]);
    return {sum_error(op.columns) * (op.log ? 1 + y : y), y};
  }
  const graph::SoftmaxBackward<double> op{expected};
  double terms = 0;
  const int64_t row = i / op.columns * op.columns;
  for (int64_t c = row; c < row + op.columns; ++c)
    terms += std::abs(op.log ? op.d_y[c] : op.d_y[c] * op.y[c]);
  const double y = op.log ? std::exp(op.y[i]) : op.y[i];
  return {sum_error(op.columns) * (std::abs(op.d_y[i]) + y * (std::abs(op.d_y[i]) + terms)),
          std::abs(op.d_x[i])};
}

OpTest softmax_test(const Shape& shape, graph::SoftmaxForm form) {
  return {.name = std::string(form == graph::SoftmaxForm::kLogarithm ? "log-softmax of "
                                                                     : "softmax of ") +
                  to_string(shape),
          .build =
              [=](graph::GraphBuilder& builder) {
                ops::softmax(builder, "y", builder.activation_tensor("x", shape), form);
              },
          .reference = kReference,
          .cpu = cpu::kCpuSoftmax,
          .cuda = cuda::kCudaSoftmax,
          .tolerance = tolerance,
          .low = -5,
          .high = 5};
}

class SoftmaxTest : public testing::TestWithParam<graph::SoftmaxForm> {};
INSTANTIATE_TEST_SUITE_P(All,
                         SoftmaxTest,
                         testing::Values(graph::SoftmaxForm::kShares,
                                         graph::SoftmaxForm::kSharesOrZero,
                                         graph::SoftmaxForm::kLogarithm));

TEST_P(SoftmaxTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(softmax_test({3, 7}, GetParam()));
}

TEST_P(SoftmaxTest, MatchesTheReferenceOnAllDevices) {
  if (GetParam() == graph::SoftmaxForm::kSharesOrZero)
    return;  // HiddenElementsMatchTheReference has it
  for (const int64_t columns : {1, 2, 15, 17, 64, 600, 4104})
    check_on_all_devices(softmax_test({2, 3, columns}, GetParam()));
  OpTest many = softmax_test({301, 130}, GetParam());
  many.cuda = {};
  check_on_all_devices(many);
}

TEST_P(SoftmaxTest, LargeElementsDoNotOverflow) {
  OpTest test = softmax_test({2, 20}, GetParam());
  test.gradients = 0;
  test.value = [](const std::string&, int64_t i) { return i % 2 == 0 ? 3e4 : -3e4; };
  check_on_all_devices(test);
}

TEST_P(SoftmaxTest, WhatHasNoDistributionIsNotANumber) {
  for (const double value : {-kInf, kInf, std::nan("")}) {
    OpTest test = softmax_test({3, 19}, GetParam());
    test.gradients = 0;
    // One row is of it.
    test.value = [=](const std::string&, int64_t i) {
      return i / 19 == 1 ? value : 0.1 * (i % 19);
    };
    check_on_all_devices(test);
  }
}

// What a mask hides in a row; and with the form that has zeros also whole rows, in which a NaN is
// still seen: of one vector, some, and more than a warp has.
TEST_P(SoftmaxTest, HiddenElementsMatchTheReference) {
  if (GetParam() == graph::SoftmaxForm::kLogarithm) return;  // of 0
  const bool whole = GetParam() == graph::SoftmaxForm::kSharesOrZero;
  for (const int64_t columns :
       whole ? std::vector<int64_t>{1, 19, 64, 4104} : std::vector<int64_t>{19}) {
    OpTest masked = softmax_test({columns > 64 ? 2 : 5, columns}, GetParam());
    const auto value = [=](const std::string& tensor, int64_t i) {
      const bool hidden = (whole && i / columns % 2 == 1) || i % columns % 3 == 1;
      return tensor == "x" && hidden ? -kInf : 0.1 * static_cast<double>(i % 19);
    };
    masked.value = value;
    check_on_all_devices(masked);
    if (!whole) continue;
    masked.gradients = 0;
    masked.value = [=](const std::string& tensor, int64_t i) {
      return i == columns + columns / 2 ? std::nan("") : value(tensor, i);
    };
    check_on_all_devices(masked);
  }
}

}  // namespace
}  // namespace lockstep::test
