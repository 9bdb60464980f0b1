// Catches: noise that depends on the lane or on where a sample stands in it, noise of another op or
// step, a wrong mean or scale.
#include "runtime/graph/ops/random_normal.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

void reference(const graph::OpCall& call) {
  const graph::RandomNormal<double> op{call};
  const graph::LaneContext& lane = call.lane();
  const RngStream stream{lane.seed, lane.step, 0, kRngDropout | op.attributes.stream};
  for (int64_t i = 0; i < op.n; ++i) {
    const int64_t sample = lane.first_sample + i / op.of_sample;
    const uint32_t word =
        philox_word(stream, static_cast<uint64_t>(sample * op.of_sample + i % op.of_sample));
    op.y[i] = static_cast<double>(op.attributes.mean) +
              static_cast<double>(op.attributes.scale) * normal_quantile((word + 0.5) * 0x1p-32);
  }
}

constexpr exec::Implementation kReference[] = {{graph::OpKind::kRandomNormal, "double", reference}};

OpTest noise(const Shape& shape, float mean, float scale, int others = 0) {
  return {.name = "random_normal of " + to_string(shape),
          .build =
              [=](graph::GraphBuilder& builder) {
                for (int i = 0; i < others; ++i) builder.new_random_stream();
                ops::random_normal(builder, "y", shape, mean, scale);
              },
          .reference = kReference,
          .cpu = cpu::kCpuRandomNormal,
          .cuda = cuda::kCudaRandomNormal,
          // Noise is below 7.
          .tolerance =
              [=](const graph::OpCall&, graph::OutputName, int64_t) {
                const double size = 7 * static_cast<double>(scale) + std::abs(mean);
                return Tolerance{4 * size, size};
              },
          .gradients = 0};
}

TEST(RandomNormalTest, MatchesAPlainLoop) {
  for (const Shape& shape : {Shape{1}, Shape{5}, Shape{3, 17}, Shape{2, 9, 250}}) {
    OpTest test = noise(shape, 0.5f, 2);
    check_on_all_devices(test);
    test.lane = {.seed = 0xFEDCBA9876543210u, .step = 4000000000u, .lane = 9, .first_sample = 7777};
    check_on_all_devices(test);
  }
}

// Sample 2 of a lane that begins at 4 is sample 0 of one that begins at 6, whatever lane it is.
TEST(RandomNormalTest, DrawsByTheNumberOfTheSample) {
  OpTest test = noise({4, 3}, 0, 1);
  test.lane = {.seed = 3, .step = 5, .lane = 1, .first_sample = 4};
  const std::vector<double> at_4 = first_output_of_reference(test);
  test.lane = {.seed = 3, .step = 5, .lane = 2, .first_sample = 6};
  const std::vector<double> at_6 = first_output_of_reference(test);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(at_4[i + 6], at_6[i]);
  test.lane.step = 6;
  EXPECT_NE(first_output_of_reference(test)[0], at_6[0]);
  OpTest other = noise({4, 3}, 0, 1, /*others=*/1);
  other.lane = {.seed = 3, .step = 5, .lane = 2, .first_sample = 6};
  EXPECT_NE(first_output_of_reference(other)[0], at_6[0]);
}

TEST(RandomNormalTest, HasTheStatedMeanAndDeviation) {
  constexpr int64_t kCount = 1 << 18;
  double sum = 0, squares = 0;
  for (const double y : first_output_of_reference(noise({kCount}, 3, 2))) {
    sum += y;
    squares += (y - 3) * (y - 3);
  }
  const double five = 5 / std::sqrt(static_cast<double>(kCount));  // standard deviations
  EXPECT_NEAR(sum / kCount, 3, 2 * five);
  EXPECT_NEAR(squares / kCount, 4, 4 * std::sqrt(2.0) * five);
}

}  // namespace
}  // namespace lockstep::test
