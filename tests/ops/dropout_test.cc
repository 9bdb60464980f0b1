// Catches: a vectorised Philox that differs from the scalar one in any word (also for large seeds,
// lanes and purposes), a mask that differs between forward and backward, a wrong keep rate or
// scale.
#include "runtime/graph/ops/dropout.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

void reference(const graph::OpCall& call) {
  const graph::Dropout<double> op{call};
  const graph::LaneContext& lane = call.lane();
  const RngStream stream{lane.seed, lane.step, lane.lane, op.purpose};
  for (int64_t i = 0; i < op.n; ++i) {
    const double word = philox_word(stream, static_cast<uint64_t>(i));
    const bool kept = word >= static_cast<double>(op.probability) * 4294967296.0;
    op.y[i] = kept ? op.x[i] * op.factor() : 0;
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kDropout, "double", reference},
    {graph::OpKind::kDropoutBackward, "double", reference},
};

// The mask is exact; what is kept is one product.
OpTest dropout(int64_t n, float probability) {
  return {.name = "dropout of " + std::to_string(n) + ", " + std::to_string(probability),
          .build =
              [=](graph::GraphBuilder& builder) {
                builder.new_random_stream();  // of another op
                ops::dropout(builder, "y", builder.activation_tensor("x", {n}), probability);
              },
          .reference = kReference,
          .cpu = cpu::kCpuDropout,
          .cuda = cuda::kCudaDropout,
          .tolerance =
              [](const graph::OpCall& expected, graph::OutputName, int64_t i) {
                const double y = std::abs(graph::Dropout<double>{expected}.y[i]);
                return Tolerance{y, y};
              },
          .low = 0.5,
          .high = 3};
}

TEST(DropoutTest, HasTheMaskOfTheScalarGenerator) {
  for (const int64_t n : {1, 3, 15, 17, 33, 1003, 2048, 5001}) {
    for (const float probability : {0.1f, 0.5f, 0.999f}) {
      OpTest test = dropout(n, probability);
      check_on_all_devices(test);
      test.lane = {.seed = 0xFEDCBA9876543210u, .step = 4000000000u, .lane = 4095};
      check_on_all_devices(test);
    }
  }
}

TEST(DropoutTest, KeepsTheStatedFractionAndTheMean) {
  constexpr int64_t kCount = 1 << 20;
  constexpr float kProbability = 0.3f;
  OpTest ones = dropout(kCount, kProbability);
  ones.value = [](const std::string&, int64_t) { return 1; };
  double kept = 0, sum = 0;
  for (const double value : first_output_of_reference(ones)) {
    kept += value != 0;
    sum += value;
  }
  // Five standard deviations of a binomial count.
  const double deviation = 5 * std::sqrt(kProbability * (1 - kProbability) / kCount);
  EXPECT_LE(std::abs(kept / kCount - (1 - kProbability)), deviation);
  EXPECT_LE(std::abs(sum / kCount - 1), deviation / (1 - kProbability));
}

TEST(DropoutTest, DifferentStreamsGiveDifferentMasks) {
  constexpr int64_t kCount = 4096;
  OpTest test = dropout(kCount, 0.5f);
  const std::vector<double> base = first_output_of_reference(test);
  const graph::LaneContext lane = test.lane;
  graph::LaneContext others[] = {lane, lane, lane, lane};
  others[0].seed ^= 1;
  others[1].seed ^= uint64_t{1} << 32;
  others[2].step += 1;
  others[3].lane += 1;
  for (const graph::LaneContext& other : others) {
    test.lane = other;
    const std::vector<double> mask = first_output_of_reference(test);
    int64_t equal = 0;
    for (size_t i = 0; i < mask.size(); ++i) equal += (base[i] == 0) == (mask[i] == 0);
    // Independent masks agree in half the places; six standard deviations are 192.
    EXPECT_LE(std::abs(equal - kCount / 2), 192);
  }
}

}  // namespace
}  // namespace lockstep::test
