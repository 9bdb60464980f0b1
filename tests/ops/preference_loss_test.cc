// Catches: a wrong formula or gradient, chosen and rejected exchanged, a reference that is left out
// or added, overflow of large margins, equal scores that count as right, padding pairs that count,
// NaN swallowed.
#include "runtime/graph/ops/preference_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

double minus_log_sigmoid(double z) {
  return std::isnan(z) ? z : std::max(-z, 0.0) + std::log1p(std::exp(-std::abs(z)));
}

double margin_of(const graph::PreferenceLoss<double>& op, int64_t pair) {
  double margin = op.scores[2 * pair] - op.scores[2 * pair + 1];
  if (op.reference != nullptr) margin -= op.reference[2 * pair] - op.reference[2 * pair + 1];
  return margin;
}

void reference(const graph::OpCall& call) {
  const graph::PreferenceLoss<double> op{call};
  const double beta = op.attributes.beta, smoothing = op.attributes.label_smoothing;
  std::fill_n(op.statistics, 4, 0.0);
  for (int64_t pair = 0; pair < op.pairs; ++pair) {
    const bool counts = pair < call.lane().valid_rows;
    const double z = beta * margin_of(op, pair);
    if (op.gradient != nullptr) {
      const double slope = 1 / (1 + std::exp(-z)) - (1 - smoothing);
      op.gradient[2 * pair] = counts ? beta * slope * call.lane().gradient_scale : 0;
      op.gradient[2 * pair + 1] = -op.gradient[2 * pair];
    }
    if (!counts) continue;
    op.statistics[0] += (1 - smoothing) * minus_log_sigmoid(z) + smoothing * minus_log_sigmoid(-z);
    op.statistics[1] += 1;
    op.statistics[2] += z > 0 ? 1 : 0;
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kPreferenceLoss, "double", reference}};

// Scores lie in (-range, range); those of every seventh pair are equal.
OpTest loss(int64_t pairs,
            bool has_reference,
            const graph::PreferenceLossAttributes& attributes,
            double range) {
  return {.name = std::to_string(pairs) + " pairs up to " + std::to_string(range) +
                  (has_reference ? ", reference" : ""),
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId scores = builder.activation_tensor("scores", {pairs, 2});
                const TensorId of_reference =
                    has_reference ? builder.input("reference", {pairs, 2}, DType::kF32) : kNoTensor;
                ops::preference_loss(builder, scores, of_reference, attributes);
              },
          .reference = kReference,
          .cpu = cpu::kCpuPreferenceLoss,
          .cuda = cuda::kCudaPreferenceLoss,
          .tolerance =
              [=](const graph::OpCall& expected, graph::OutputName output, int64_t i) -> Tolerance {
            const graph::PreferenceLoss<double> op{expected};
            const double scale = expected.lane().gradient_scale * op.attributes.beta;
            // A margin is a sum of four scores, each of which is rounded.
            const double z = op.attributes.beta * 8 * range + 8;
            if (output == graph::LossOut::kGradient) return {scale * z, std::abs(op.gradient[i])};
            return i == 0 ? Tolerance{z * static_cast<double>(pairs), 0} : Tolerance{0, 0};
          },
          .value =
              [=](const std::string& tensor, int64_t i) {
                const int64_t at = i / 2 % 7 == 3 ? i / 2 : i * i % 9973 + i;
                return range * std::sin(static_cast<double>(at + (tensor == "scores" ? 0 : 7)));
              },
          .lane = {.valid_rows = pairs, .gradient_scale = 0.25f}};
}

constexpr graph::PreferenceLossAttributes kDpo = {.beta = 0.1f, .label_smoothing = 0},
                                          kSmooth = {.beta = 0.5f, .label_smoothing = 0.25f},
                                          kRewards = {};

TEST(PreferenceLossTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(loss(5, true, kDpo, 3));
  check_gradient_of_reference(loss(5, true, kSmooth, 3));
  check_gradient_of_reference(loss(5, false, kRewards, 3));
}

TEST(PreferenceLossTest, MatchesTheReferenceOnAllDevices) {
  for (OpTest test : {loss(1, true, kDpo, 3),
                      loss(300, true, kDpo, 200),
                      loss(7, true, kSmooth, 3),
                      loss(9, false, kRewards, 200)}) {
    check_on_all_devices(test);
    test.lane.valid_rows -= 1;
    check_on_all_devices(test);
  }
}

TEST(PreferenceLossTest, EvaluationHasNoGradient) {
  for (OpTest test : {loss(5, true, kSmooth, 3), loss(5, false, kRewards, 3)}) {
    test.gradients = 0;
    test.lane.valid_rows = 4;
    check_on_all_devices(test);
  }
}

TEST(PreferenceLossTest, NanReachesTheLoss) {
  OpTest test = loss(3, true, kDpo, 3);
  test.value = [](const std::string& tensor, int64_t i) {
    return tensor == "scores" && i == 3 ? std::nan("") : 0.25;
  };
  check_on_all_devices(test);
}

}  // namespace
}  // namespace lockstep::test
