// Catches: noise or times that depend on the lane or on where a sample stands in it, shares of the
// wrong time, a wrong target, classes lost too often or in evaluation, noise that is not normal,
// and evaluations that draw what training draws.
#include "runtime/graph/ops/diffusion_noise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

void reference(const graph::OpCall& call) {
  const graph::DiffusionNoise<double> op{call};
  const graph::LaneContext& lane = call.lane();
  const RngStream noises{lane.seed, lane.step, 0, op.attributes.purpose};
  const RngStream others{lane.seed, lane.step, 0, op.attributes.purpose + 1};
  for (int64_t s = 0; s < op.samples; ++s) {
    const auto number = static_cast<uint64_t>(lane.first_sample + s);
    const uint32_t for_time = philox_word(others, 2 * number);
    double a = 0, b = 0;
    if (op.time_count > 0) {
      const auto time =
          static_cast<int64_t>(for_time * static_cast<double>(op.time_count) * 0x1p-32);
      a = op.shares[time];
      b = op.shares[op.time_count + time];
      op.times[s] = static_cast<double>(time);
    } else {
      b = (for_time >> 8) * 0x1p-24;
      a = 1 - b;
      op.times[s] = 1000 * b;
    }
    const double for_class = (philox_word(others, 2 * number + 1) >> 8) * 0x1p-24;
    op.classes[s] = for_class < op.attributes.label_dropout ? op.attributes.classes : op.labels[s];
    for (int64_t e = 0; e < op.elements; ++e) {
      const int64_t i = s * op.elements + e;
      const uint32_t word = philox_word(
          noises, number * static_cast<uint64_t>(op.elements) + static_cast<uint64_t>(e));
      const double x = op.x[i] / 127.5 - 1, noise = normal_quantile((word + 0.5) * 0x1p-32);
      op.y[i] = a * x + b * noise;
      switch (op.attributes.target) {
        case DiffusionTarget::kEpsilon: op.target[i] = noise; break;
        case DiffusionTarget::kSample: op.target[i] = x; break;
        case DiffusionTarget::kVelocity:
          op.target[i] = op.time_count > 0 ? a * noise - b * x : noise - x;
          break;
      }
    }
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kDiffusionNoise, "double", reference}};

struct Case {
  int64_t samples = 3, height = 5, width = 3, channels = 3;
  int64_t times = 0;  // 0: straight lines
  graph::DiffusionNoiseAttributes attributes = {.label_dropout = 0.5f, .classes = 10};
};

OpTest diffusion_noise(const Case& at) {
  return {.name = "diffusion_noise of " + std::to_string(at.samples) + " samples, " +
                  std::to_string(at.times) + " times, target " +
                  std::to_string(static_cast<int>(at.attributes.target)),
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId x =
                    builder.input("x", {at.samples, at.height, at.width, at.channels}, DType::kU8);
                const TensorId labels = builder.input("labels", {at.samples}, DType::kI32);
                const TensorId shares =
                    at.times == 0 ? kNoTensor : builder.input("shares", {2, at.times}, DType::kF32);
                ops::diffusion_noise(builder, "y", x, labels, shares, at.attributes);
              },
          .reference = kReference,
          .cpu = cpu::kCpuDiffusionNoise,
          .cuda = cuda::kCudaDiffusionNoise,
          // Noise is below 7; the sum of three roundings of that.
          .tolerance =
              [](const graph::OpCall&, graph::OutputName output, int64_t) {
                if (output == graph::DiffusionNoiseOut::kClasses) return Tolerance{0, 0};
                return output == graph::DiffusionNoiseOut::kTimes
                           ? Tolerance{1000, 0}
                           : Tolerance{20, output == graph::DiffusionNoiseOut::kY ? 8.0 : 0};
              },
          .gradients = 0,
          .value = [](const std::string& tensor, int64_t i) -> double {
            if (tensor == "x") return static_cast<double>((i * 37 + 11) % 256);
            if (tensor == "labels") return static_cast<double>(i % 10);
            return static_cast<double>((i * 29 + 3) % 64) / 64;
          }};
}

TEST(DiffusionNoiseTest, MatchesAPlainLoop) {
  for (const int64_t times : {0, 1, 7, 1000}) {
    for (const auto target :
         {DiffusionTarget::kEpsilon, DiffusionTarget::kSample, DiffusionTarget::kVelocity}) {
      Case at{.times = times};
      at.attributes.target = target;
      OpTest test = diffusion_noise(at);
      check_on_all_devices(test);
      test.lane = {.seed = 0xFEDCBA9876543210u, .step = 4000000000u, .first_sample = 77777};
      check_on_all_devices(test);
    }
  }
  check_on_all_devices(diffusion_noise({.samples = 1, .height = 1, .width = 1, .channels = 1}));
  check_on_all_devices(diffusion_noise({.samples = 70, .height = 12, .width = 12, .channels = 1}));
}

// Sample 2 of a lane that begins at 4 is sample 0 of one that begins at 6, whatever lane it is.
TEST(DiffusionNoiseTest, DrawsByTheNumberOfTheSample) {
  const Case at{.samples = 4, .times = 1000};
  const int64_t elements = at.height * at.width * at.channels;
  OpTest test = diffusion_noise(at);
  test.value = [](const std::string& tensor, int64_t i) {
    return tensor == "shares" ? static_cast<double>(i) / 2000 : 3;
  };
  test.lane = {.seed = 3, .step = 5, .lane = 1, .first_sample = 4};
  const std::vector<double> first = first_output_of_reference(test);
  test.lane = {.seed = 3, .step = 5, .lane = 0, .first_sample = 6};
  const std::vector<double> second = first_output_of_reference(test);
  EXPECT_TRUE(std::equal(first.begin() + 2 * elements, first.end(), second.begin()));
  EXPECT_NE(first[0], first[static_cast<size_t>(elements)]);
}

TEST(DiffusionNoiseTest, NoiseIsNormal) {
  Case at{.samples = 64, .height = 32, .width = 32, .channels = 1, .times = 1};
  OpTest test = diffusion_noise(at);
  test.value = [](const std::string& tensor, int64_t i) {
    return tensor == "shares" ? static_cast<double>(i) : 0;  // all noise
  };
  const std::vector<double> noise = first_output_of_reference(test);
  double sum = 0, squares = 0, fourth = 0;
  for (const double x : noise) {
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  const auto n = static_cast<double>(noise.size());
  // Five standard deviations of the means of x, x^2 and x^4.
  EXPECT_LE(std::abs(sum / n), 5 / std::sqrt(n));
  EXPECT_LE(std::abs(squares / n - 1), 5 * std::sqrt(2 / n));
  EXPECT_LE(std::abs(fourth / n - 3), 5 * std::sqrt(96 / n));
}

TEST(DiffusionNoiseTest, EvaluationKeepsClassesAndHasNoiseOfItsOwn) {
  graph::GraphBuilder training(graph::Purpose::kTraining), evaluation(graph::Purpose::kEvaluation);
  for (graph::GraphBuilder* builder : {&training, &evaluation}) {
    const TensorId x = builder->input("x", {2, 4, 4, 1}, DType::kU8);
    const TensorId labels = builder->input("labels", {2}, DType::kI32);
    ops::diffusion_noise(*builder, "y", x, labels, kNoTensor, {.label_dropout = 0.5f});
  }
  const auto of = [](const graph::GraphBuilder& builder) {
    return builder.graph().ops.back().as<graph::DiffusionNoiseAttributes>();
  };
  EXPECT_EQ(of(training).label_dropout, 0.5f);
  EXPECT_EQ(of(evaluation).label_dropout, 0);
  EXPECT_NE(of(training).purpose & ~1u, of(evaluation).purpose & ~1u);
}

}  // namespace
}  // namespace lockstep::test
