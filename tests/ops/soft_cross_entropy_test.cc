// Catches: a wrong formula or gradient, targets whose sum is not 1, smoothing that torch defines
// otherwise, overflow of large logits, accuracy counted wrongly, padding rows that count or have a
// gradient, classes lost beyond a vector or a warp, NaN swallowed.
#include "runtime/graph/ops/soft_cross_entropy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

void reference(const graph::OpCall& call) {
  const graph::SoftCrossEntropy<double> op{call};
  std::fill_n(op.statistics, 4, 0.0);
  const double each = op.label_smoothing / static_cast<double>(op.classes);
  for (int64_t row = 0; row < op.rows; ++row) {
    const double* const x = op.logits + row * op.classes;
    const double* const t = op.targets + row * op.classes;
    const bool counts = row < call.lane().valid_rows;
    const double largest = *std::max_element(x, x + op.classes);
    double sum = 0, total = 0, loss = 0;
    for (int64_t c = 0; c < op.classes; ++c) sum += std::exp(x[c] - largest);
    const int64_t answer = std::max_element(x, x + op.classes) - x;
    for (int64_t c = 0; c < op.classes; ++c) {
      const double u = (1 - op.label_smoothing) * t[c] + each;
      total += u;
      loss -= u * (x[c] - largest - std::log(sum));
    }
    for (int64_t c = 0; op.gradient != nullptr && c < op.classes; ++c) {
      const double u = (1 - op.label_smoothing) * t[c] + each;
      const double p = std::exp(x[c] - largest) / sum;
      op.gradient[row * op.classes + c] = counts ? (p * total - u) * call.lane().gradient_scale : 0;
    }
    if (!counts) continue;
    op.statistics[0] += loss;
    op.statistics[1] += 1;
    op.statistics[2] += answer == std::max_element(t, t + op.classes) - t ? 1 : 0;
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kSoftCrossEntropy, "double", reference}};

// Logits lie in (-range, range); targets are shares whose sum is about `sum`, a third of them 0.
OpTest loss(int64_t rows, int64_t classes, double range, float smoothing = 0, double sum = 1) {
  return {.name = "soft_cross_entropy of (" + std::to_string(rows) + ", " +
                  std::to_string(classes) + ") up to " + std::to_string(range),
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId x = builder.activation_tensor("x", {rows, classes});
                const TensorId t = builder.input("targets", {rows, classes}, DType::kF32);
                ops::soft_cross_entropy(builder, x, t, smoothing);
              },
          .reference = kReference,
          .cpu = cpu::kCpuSoftCrossEntropy,
          .cuda = cuda::kCudaSoftCrossEntropy,
          .tolerance =
              [=](const graph::OpCall& expected, graph::OutputName output, int64_t i) -> Tolerance {
            const graph::SoftCrossEntropy<double> op{expected};
            const double scale = expected.lane().gradient_scale;
            // Exponentials of large distances lose precision in units of the distance.
            const double sums = 8 + static_cast<double>(classes) / 16 + range;
            if (output == graph::LossOut::kGradient) {
              const double d_x = std::abs(op.gradient[i]);
              return {8 * sums * (d_x + scale * std::max(sum, 1.0) / static_cast<double>(classes)),
                      d_x};
            }
            if (i == 0)
              return {8 * sums * (op.statistics[0] + static_cast<double>(rows) * range * sum), 0};
            return {i == 2 ? 1.0 : 1.0, 0};
          },
          .value =
              [=](const std::string& tensor, int64_t i) {
                const double at = std::fmod(static_cast<double>(i + 1) * 0.61803398875, 1.0);
                if (tensor == "x") return range * (2 * at - 1);
                return i % 3 == 0 ? 0.0 : 3 * at * sum / static_cast<double>(classes);
              },
          .lane = {.valid_rows = rows, .gradient_scale = 0.25f}};
}

TEST(SoftCrossEntropyTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(loss(3, 7, 2));
  check_gradient_of_reference(loss(3, 7, 2, 0.2f, 1.7));
}

TEST(SoftCrossEntropyTest, MatchesTheReferenceOnAllDevices) {
  for (const int64_t classes : {2, 3, 15, 17, 71, 1003}) {
    for (const int64_t valid_rows : {0, 3, 9}) {
      for (const float smoothing : {0.0f, 0.1f}) {
        OpTest test = loss(5, classes, 3, smoothing);
        test.lane.valid_rows = valid_rows;
        check_on_all_devices(test);
        test.gradients = 0;  // of an evaluation
        check_on_all_devices(test);
      }
    }
  }
  check_on_all_devices(loss(5, 17, 60));
  check_on_all_devices(loss(300, 21, 3, 0, 0.5));
}

// A chunk of the CPU's sums has 4096 classes.
TEST(SoftCrossEntropyTest, LongRowsMatchTheReference) { check_on_all_devices(loss(2, 4100, 3)); }

TEST(SoftCrossEntropyTest, NanReachesTheLoss) {
  OpTest test = loss(1, 20, 3);
  test.value = [](const std::string& tensor, int64_t i) {
    return tensor == "x" && i == 17 ? std::nan("") : 0.05;
  };
  test.gradients = 0;
  check_on_all_devices(test);
}

}  // namespace
}  // namespace lockstep::test
