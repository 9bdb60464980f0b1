// Catches: overflow of large logits, a wrong smoothing term, ignored or padding rows that count or
// have a gradient, an argmax that breaks ties otherwise, precision lost over a large vocabulary,
// elements lost where a row begins or ends between multiples of 16 bytes, a logit read after its
// gradient was written over it, NaN swallowed, infinities that become NaN; a second target of the
// wrong row, or that counts with a wrong share; weights of other classes, or that smoothing leaves
// out.
#include "runtime/graph/ops/softmax_cross_entropy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "runtime/base/rng.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

void reference(const graph::OpCall& call) {
  const graph::SoftmaxCrossEntropy<double> op{call};
  const graph::LaneContext& lane = call.lane();
  const double smoothing = op.label_smoothing, classes = static_cast<double>(op.classes);
  const int64_t counted = std::min(op.rows, lane.valid_rows);
  std::fill_n(op.statistics, 4, 0.0);
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t target = op.targets[row];
    if (op.gradient != nullptr && (row >= counted || target < 0))
      std::fill_n(op.gradient + row * op.stride, op.stride, 0.0);
    if (row >= counted || target < 0) continue;
    const int64_t mirrored = op.targets[counted - 1 - row],
                  other = mirrored >= 0 ? mirrored : target;
    const std::vector<double> x(op.logits + row * op.stride,
                                op.logits + row * op.stride + op.classes);
    const double largest = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const double value : x) sum += std::exp(value - largest);
    if (op.gradient != nullptr) std::fill_n(op.gradient + row * op.stride, op.stride, 0.0);
    for (int64_t v = 0; v < op.classes; ++v) {
      const double log_p = x[static_cast<size_t>(v)] - largest - std::log(sum);
      const double own = v == target ? lane.mix : 0, second = v == other ? 1.0 - lane.mix : 0;
      const double weight = op.weights == nullptr ? 1 : op.weights[v];
      const double wanted = weight * ((1 - smoothing) * (own + second) + smoothing / classes);
      if (wanted > 0) op.statistics[0] -= wanted * log_p;
      if (op.gradient == nullptr) continue;
      double all_wanted = 1;  // what the row's shares add up to
      if (op.weights != nullptr)
        all_wanted = (1 - smoothing) * op.weights[target] + smoothing / classes * op.weight_sum;
      op.gradient[row * op.stride + v] =
          (all_wanted * std::exp(log_p) - wanted) * lane.gradient_scale;
    }
    op.statistics[1] += op.weights == nullptr ? 1 : op.weights[target];
    op.statistics[2] += std::max_element(x.begin(), x.end()) - x.begin() == target;
    if (op.gradient != nullptr) continue;
    const auto is_larger = [&](size_t v) {
      const auto wanted = static_cast<size_t>(target);
      return v != wanted && (v < wanted ? !(x[v] < x[wanted]) : !(x[v] <= x[wanted]));
    };
    int64_t larger = 0;
    for (size_t v = 0; v < x.size(); ++v) larger += is_larger(v);
    op.statistics[3] += larger < 5;
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kSoftmaxCrossEntropy, "double", reference}};

// Some rows do not count; of some the answer is right.
double value_of(
    const std::string& tensor, int64_t i, int64_t stride, int64_t classes, double range) {
  const auto target_of = [&](int64_t row) -> int64_t {
    if (row % 5 == 2) return -1;
    return bounded_from_word(philox_word({.seed = 7}, static_cast<uint64_t>(row)),
                             static_cast<uint32_t>(classes));
  };
  if (tensor == "targets") return static_cast<double>(target_of(i));
  const int64_t row = i / stride;
  if (row % 5 == 1 && i % stride == target_of(row)) return 2 * range;
  return range * (2 * uniform_from_word(philox_word({.seed = 8}, static_cast<uint64_t>(i))) - 1);
}

struct Case {
  int64_t rows, classes, valid_rows;
  float smoothing;
  double range;
  float mix = 1;
  int64_t stride = 0;  // elements from row to row if rows are padded
  float max_weight = 1;
};

OpTest loss(const Case& at) {
  return {.name = "softmax_cross_entropy of (" + std::to_string(at.rows) + ", " +
                  std::to_string(at.classes) + "), mix " + std::to_string(at.mix),
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId x = builder.activation_tensor("x", {at.rows, at.classes});
                builder[x].padded_columns = at.stride;
                const TensorId targets = builder.input("targets", {at.rows}, DType::kI32);
                ops::softmax_cross_entropy(builder, x, targets, at.smoothing);
              },
          .reference = kReference,
          .cpu = cpu::kCpuSoftmaxCrossEntropy,
          .cuda = cuda::kCudaSoftmaxCrossEntropy,
          // x - largest rounds by half an ulp of 4 range at most, which is what the loss and,
          // relatively, each exponential inherit; the sums of exponentials in a lane add a random
          // walk of roundings. The gradient's error is relative to the probability, which is the
          // gradient itself plus, at the targets, up to 1.
          .tolerance =
              [=](const graph::OpCall& expected, graph::OutputName output, int64_t i) -> Tolerance {
            const graph::SoftmaxCrossEntropy<double> op{expected};
            if (output == graph::LossOut::kGradient) {
              const double d_x = std::abs(op.gradient[i]), scale = expected.lane().gradient_scale;
              return {30 * (1 + at.range) * (d_x + at.max_weight * scale), d_x};
            }
            if (i > 0) return {0, 0};  // weights are such that sums of them are exact
            return {20 * (std::abs(op.statistics[0]) + 4 * at.range * op.statistics[1]) +
                        20 * at.smoothing * at.max_weight * static_cast<double>(at.rows),
                    0};
          },
          .value =
              [=](const std::string& tensor, int64_t i) {
                return value_of(tensor, i, std::max(at.stride, at.classes), at.classes, at.range);
              },
          .lane = {.valid_rows = at.valid_rows, .gradient_scale = 0.125f, .mix = at.mix}};
}

void check(const Case& at) {
  OpTest test = loss(at);
  check_on_all_devices(test);
  test.gradients = 0;  // of an evaluation
  check_on_all_devices(test);
}

TEST(SoftmaxCrossEntropyTest, ReferenceMatchesFiniteDifferences) {
  for (const float smoothing : {0.0f, 0.2f}) {
    for (const float mix : {1.0f, 0.7f})
      check_gradient_of_reference(loss({6, 7, 5, smoothing, 2, mix}));
  }
}

TEST(SoftmaxCrossEntropyTest, MatchesTheReferenceOnAllDevices) {
  for (const float smoothing : {0.0f, 0.1f}) {
    for (const int64_t classes : {1, 2, 10, 15, 17, 257, 1003})
      check({7, classes, 7, smoothing, 3});
    check({9, 33, 4, smoothing, 3});     // padding rows
    check({9, 33, 100, smoothing, 3});   // fewer rows than are valid
    check({260, 3, 259, smoothing, 3});  // several tiles, the last one short
    check({130, 32, 130, smoothing, 3});
    check({3, 5003, 3, smoothing, 10});  // several chunks, the last one short
  }
  check_on_all_devices(loss({33000, 2, 32999, 0, 1}));  // several blocks sum the rows
  // Longer than what a block keeps in registers, at odd addresses.
  check_on_all_devices(loss({2, 58001, 2, 0.1f, 10}));
  for (const int64_t classes : {40, 1500})  // overflow without the largest subtracted
    check_on_all_devices(loss({5, classes, 5, 0.1f, 1000}));
}

TEST(SoftmaxCrossEntropyTest, MixedTargetsMatchTheReferenceOnAllDevices) {
  for (const float mix : {0.5f, 0.625f, 0.9f}) {
    for (const float smoothing : {0.0f, 0.1f}) {
      check({8, 10, 8, smoothing, 3, mix});
      check({7, 2, 7, smoothing, 3, mix});     // often the same class; a row by itself
      check({9, 33, 4, smoothing, 3, mix});    // padding rows
      check({9, 33, 100, smoothing, 3, mix});  // fewer rows than are valid
    }
    check({3, 5003, 3, 0.1f, 10, mix});
  }
}

// Weights of classes, from an eighth to `most_weight`, as torch.nn.CrossEntropyLoss(weight=...) has
// them.
OpTest weighted(Case at) {
  at.max_weight = 4;
  OpTest test = loss(at);
  for (int64_t c = 0; c < at.classes; ++c)
    test.class_weights.push_back(static_cast<float>(1 + c * 5 % 32) / 8);
  return test;
}

TEST(SoftmaxCrossEntropyTest, WeightsMatchTheReferenceOnAllDevices) {
  for (const float smoothing : {0.0f, 0.2f}) {
    check_gradient_of_reference(weighted({6, 7, 5, smoothing, 2}));
    for (const int64_t classes : {1, 2, 10, 17, 33, 1003}) {
      for (const int64_t valid_rows : {7, 4}) {
        OpTest test = weighted({7, classes, valid_rows, smoothing, 3});
        check_on_all_devices(test);
        test.gradients = 0;  // of an evaluation
        check_on_all_devices(test);
      }
    }
    check_on_all_devices(weighted({3, 1500, 3, smoothing, 3, 1, 1504}));
  }
}

// torch.nn.functional.cross_entropy(x, t, weight=w, label_smoothing=s, reduction="sum").
TEST(SoftmaxCrossEntropyTest, WeightsAreThoseOfPyTorch) {
  const double x[] = {0.5, -1.0, 2.0, 1.5, 0.25, -0.75};
  for (const auto& [smoothing, expected] :
       {std::pair(0.0f, 14.224640421535987), {0.2f, 12.656106412746084}}) {
    OpTest test = loss({2, 3, 2, smoothing, 1});
    test.class_weights = {0.5f, 2.0f, 3.0f};
    test.value = [&](const std::string& tensor, int64_t i) -> double {
      return tensor == "targets" ? (i == 0 ? 1 : 2) : x[i];
    };
    EXPECT_NEAR(first_output_of_reference(test)[0], expected, 1e-6);
    EXPECT_EQ(first_output_of_reference(test)[1], 5);
  }
}

TEST(SoftmaxCrossEntropyTest, RowsThatArePaddedHaveNoGradientThere) {
  check({7, 10, 5, 0.1f, 2, 1, 16});
  check({130, 5, 129, 0.1f, 2, 1, 8});
  check({7, 10, 5, 0.1f, 2, 1, 40});
  check({8, 10, 8, 0.1f, 2, 0.625f, 32});
  check({2, 4090, 2, 0, 10, 1, 4096});
}

// Rows 0 and 2 are right, 1 and 3 wrong.
TEST(SoftmaxCrossEntropyTest, FirstOfEqualLogitsWins) {
  for (const int64_t classes : {24, 40, 3000}) {
    const int64_t last = std::min<int64_t>(35, classes - 1);
    OpTest test = loss({4, classes, 4, 0, 1});
    test.value = [=](const std::string& tensor, int64_t i) -> double {
      if (tensor == "targets")
        return static_cast<double>(
            std::array{int64_t{0}, int64_t{1}, int64_t{20}, last}[static_cast<size_t>(i)]);
      const int64_t column = i % classes;
      return i >= 2 * classes && (column == 20 || column == last) ? 1 : 0.5;
    };
    EXPECT_EQ(first_output_of_reference(test)[2], 2);
    check_on_all_devices(test);
    test.gradients = 0;
    check_on_all_devices(test);
  }
}

// Whole vectors, and all that a thread has, hide behind the finite ones.
TEST(SoftmaxCrossEntropyTest, RowsOfInfinitiesButForAFewLogits) {
  for (const int64_t classes : {77, 3003}) {
    for (const double hidden : {-std::numeric_limits<double>::infinity(), -3e38}) {
      OpTest test = loss({2, classes, 2, 0, 2});
      test.value = [=](const std::string& tensor, int64_t i) -> double {
        if (tensor == "targets") return 70;
        return i % classes == 70 ? -1 : i % classes == 75 ? -2 : hidden;
      };
      check_on_all_devices(test);
    }
  }
}

TEST(SoftmaxCrossEntropyTest, NanIsNotLostInALongRow) {
  for (const int64_t place : {0, 1700, 3002}) {
    OpTest test = loss({1, 3003, 1, 0, 1});
    test.value = [=](const std::string& tensor, int64_t i) -> double {
      if (tensor == "targets") return 1;
      return i == place ? std::nan("") : static_cast<double>(i % 7) / 8;
    };
    check_on_all_devices(test);
  }
}

TEST(SoftmaxCrossEntropyTest, InfinitiesAndNan) {
  OpTest test = loss({1, 3, 1, 0, 1});
  for (const int64_t place : {0, 1, 2}) {
    test.value = [=](const std::string& tensor, int64_t i) -> double {
      if (tensor == "targets") return 1;
      return i == place ? std::nan("") : static_cast<double>(i);
    };
    check_on_all_devices(test);
  }
  test.value = [](const std::string& tensor, int64_t i) -> double {  // -infinity takes no part
    if (tensor == "targets") return 1;
    return i == 0 ? -std::numeric_limits<double>::infinity() : 2;
  };
  check_on_all_devices(test);
}

}  // namespace
}  // namespace lockstep::test
