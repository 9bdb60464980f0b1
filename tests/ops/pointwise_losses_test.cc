// Catches: a wrong formula or gradient, overflow of large logits, accuracy counted wrongly, padding
// rows that count or have a gradient, outputs lost beyond a vector or a warp, NaN swallowed.
#include "runtime/graph/ops/pointwise_losses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

void reference(const graph::OpCall& call) {
  const graph::PointwiseLoss<double> op{call};
  std::fill_n(op.statistics, 4, 0.0);
  const auto outputs = static_cast<double>(op.outputs);
  for (int64_t i = 0; i < op.rows * op.outputs; ++i) {
    const double x = op.predictions[i], t = op.targets[i];
    const bool counts = i / op.outputs < call.lane().valid_rows;
    const double weight = (1 - t) * op.class_weights[0] + t * op.class_weights[1];
    const double d = x - t, delta = op.delta;
    double loss = d * d, slope = 2 * d, correct = 0;
    if (op.kind == graph::OpKind::kMeanAbsoluteError) {
      loss = std::abs(d);
      slope = d > 0 ? 1 : d < 0 ? -1 : d;
    } else if (op.kind == graph::OpKind::kHuber) {
      loss = std::abs(d) < delta ? d * d / 2 : delta * (std::abs(d) - delta / 2);
      slope = d > delta ? delta : d < -delta ? -delta : d;
    } else if (op.kind == graph::OpKind::kBinaryCrossEntropy) {
      const double p = op.pos_weight == nullptr ? 1 : op.pos_weight[i % op.outputs];
      loss = (1 - t) * std::max(x, 0.0) + p * t * std::max(-x, 0.0) +
             (1 - t + p * t) * std::log1p(std::exp(-std::abs(x)));
      if (std::isnan(x)) loss = x;
      slope = 1 - t - (1 + (p - 1) * t) / (1 + std::exp(x));
      correct = (x > 0) == (t > 0.5) ? 1 : 0;
    }
    if (op.gradient != nullptr)
      op.gradient[i] = counts ? weight * slope / outputs * call.lane().gradient_scale : 0;
    if (!counts) continue;
    op.statistics[0] += weight * loss / outputs;
    op.statistics[1] += weight / outputs;
    op.statistics[2] += correct / outputs;
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kBinaryCrossEntropy, "double", reference},
    {graph::OpKind::kMeanSquaredError, "double", reference},
    {graph::OpKind::kMeanAbsoluteError, "double", reference},
    {graph::OpKind::kHuber, "double", reference},
};

// Predictions lie in (-range, range), targets in [0, 1), every other one at an end of it.
OpTest loss(graph::OpKind kind, int64_t rows, int64_t outputs, double range) {
  return {.name = std::string(graph::name_of(kind)) + " of (" + std::to_string(rows) + ", " +
                  std::to_string(outputs) + ") up to " + std::to_string(range),
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId x = builder.activation_tensor("x", {rows, outputs});
                const TensorId t = builder.input("targets", {rows, outputs}, DType::kF32);
                switch (kind) {
                  case graph::OpKind::kMeanSquaredError:
                    return ops::mean_squared_error(builder, x, t);
                  case graph::OpKind::kMeanAbsoluteError:
                    return ops::mean_absolute_error(builder, x, t);
                  case graph::OpKind::kHuber: return ops::huber(builder, x, t, 0.75f);
                  default: return ops::binary_cross_entropy(builder, x, t);
                }
              },
          .reference = kReference,
          .cpu = cpu::kCpuPointwiseLosses,
          .cuda = cuda::kCudaPointwiseLosses,
          .tolerance =
              [=](const graph::OpCall& expected, graph::OutputName output, int64_t i) -> Tolerance {
            const graph::PointwiseLoss<double> op{expected};
            const double scale = expected.lane().gradient_scale;
            if (output == graph::LossOut::kGradient) {
              const double d_x = std::abs(op.gradient[i]);
              return {8 * (d_x + scale / static_cast<double>(outputs)), d_x};
            }
            // A row's sum in 16 lanes or more; the terms round relative to |x|.
            const double sums = 8 + static_cast<double>(outputs) / 16;
            if (i == 0)
              return {4 * sums * (op.statistics[0] + static_cast<double>(rows) * range), 0};
            return {i == 2 ? 4 * sums * static_cast<double>(rows) : 1, 0};
          },
          .value =
              [=](const std::string& tensor, int64_t i) {
                const double at = std::fmod(static_cast<double>(i + 1) * 0.61803398875, 1.0);
                if (tensor == "x") return range * (2 * at - 1);
                return i % 2 == 0 ? std::round(at) : at;
              },
          .lane = {.valid_rows = rows, .gradient_scale = 0.25f}};
}

class PointwiseLossTest : public testing::TestWithParam<graph::OpKind> {};
INSTANTIATE_TEST_SUITE_P(All,
                         PointwiseLossTest,
                         testing::Values(graph::OpKind::kBinaryCrossEntropy,
                                         graph::OpKind::kMeanSquaredError,
                                         graph::OpKind::kMeanAbsoluteError,
                                         graph::OpKind::kHuber));

TEST_P(PointwiseLossTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(loss(GetParam(), 3, 7, 2));
}

TEST_P(PointwiseLossTest, MatchesTheReferenceOnAllDevices) {
  for (const int64_t outputs : {1, 3, 15, 17, 71, 1003}) {
    for (const int64_t valid_rows : {0, 3, 5, 9}) {
      for (const double range : {3.0, 120.0}) {
        OpTest test = loss(GetParam(), 5, outputs, range);
        test.lane.valid_rows = valid_rows;
        check_on_all_devices(test);
        test.gradients = 0;  // of an evaluation
        check_on_all_devices(test);
      }
    }
  }
  check_on_all_devices(loss(GetParam(), 3000, 21, 3));
}

// Also of targets between the classes.
TEST(BinaryCrossEntropyTest, WeightsOfClassesMatchTheReferenceOnAllDevices) {
  OpTest test = loss(graph::OpKind::kBinaryCrossEntropy, 40, 1, 3);
  test.class_weights = {0.25f, 3.0f};
  test.lane.valid_rows = 33;
  const auto tolerance = test.tolerance;
  test.tolerance =
      [=](const graph::OpCall& expected, graph::OutputName output, int64_t i) -> Tolerance {
    if (output == graph::LossOut::kStatistics && i == 1)
      return {40, 0};  // weights of targets, 33 of them
    const Tolerance plain = tolerance(expected, output, i);
    return {4 * plain.floats, plain.stored};
  };
  check_gradient_of_reference(test);
  check_on_all_devices(test);
  test.gradients = 0;
  check_on_all_devices(test);
}

TEST(BinaryCrossEntropyTest, WeightsOfYesMatchTheReferenceOnAllDevices) {
  for (const int64_t outputs : {1, 5, 19, 600}) {
    OpTest test = loss(graph::OpKind::kBinaryCrossEntropy, 9, outputs, 3);
    test.pos_weight.resize(static_cast<size_t>(outputs));
    for (size_t i = 0; i < test.pos_weight.size(); ++i)
      test.pos_weight[i] = 0.25f + static_cast<float>(i % 7);
    test.lane.valid_rows = 7;
    const auto tolerance = test.tolerance;
    test.tolerance =
        [=](const graph::OpCall& expected, graph::OutputName output, int64_t i) -> Tolerance {
      const Tolerance plain = tolerance(expected, output, i);
      return {8 * plain.floats, plain.stored};
    };
    if (outputs <= 5) check_gradient_of_reference(test);
    check_on_all_devices(test);
    test.gradients = 0;
    check_on_all_devices(test);
  }
}

TEST_P(PointwiseLossTest, NanReachesTheLoss) {
  OpTest test = loss(GetParam(), 1, 20, 3);
  test.value = [](const std::string& tensor, int64_t i) {
    return tensor == "x" && i == 17 ? std::nan("") : 0.25;
  };
  check_on_all_devices(test);
}

TEST(BinaryCrossEntropyTest, ConfidentRightAnswersKeepTheirTinyLoss) {
  for (const double x : {10.0, 20.0, 40.0}) {
    OpTest test = loss(graph::OpKind::kBinaryCrossEntropy, 2, 1, 1);
    test.value = [=](const std::string& tensor, int64_t i) {
      return tensor == "x" ? (i == 0 ? x : -x) : (i == 0 ? 1.0 : 0.0);
    };
    test.gradients = 0;
    test.tolerance = [](const graph::OpCall& expected, graph::OutputName, int64_t i) {
      return Tolerance{8 * expected.output<double>(graph::LossOut::kStatistics)[i], 0};
    };
    check_on_all_devices(test);
  }
}

}  // namespace
}  // namespace lockstep::test
