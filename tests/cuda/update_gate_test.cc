// Catches: sums on the device that are not the host's, bit for bit; a lane or a rank that is left
// out; a decision that is not the host's; an update that runs although the gate is closed, or that
// scales by its constants although the gate has a scale.

#include "runtime/cuda/flat/update_gate.h"

#include <cstring>
#include <limits>
#include <vector>

#include "tests/fibers/kernel_test.h"

namespace lockstep::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Reported {
  std::vector<uint64_t> parts;  // by rank: squares, then statistics of its lanes
  std::vector<uint32_t> places;
  collectives::StepSums expected;
  collectives::GatheredSums gathered;
};

// Lane i is run by rank i % ranks, so that places are not in the order of memory.
Reported report(int ranks, int lanes, double squares_of_rank, double loss_of_lane) {
  constexpr size_t kSumWords = sizeof(ExactSum) / sizeof(uint64_t);
  const int most = (lanes + ranks - 1) / ranks;
  const size_t part_words = kSumWords + 4 * static_cast<size_t>(most);
  Reported made;
  made.parts.resize(part_words * static_cast<size_t>(ranks));
  auto* const bytes = reinterpret_cast<std::byte*>(made.parts.data());
  ExactSum all;
  for (int rank = 0; rank < ranks; ++rank) {
    ExactSum mine;
    mine.add(squares_of_rank / (1 + rank));
    mine.add(0x1p-40 * rank);
    all += mine;
    std::memcpy(bytes + static_cast<size_t>(rank) * part_words * 8, &mine, sizeof(mine));
  }
  for (int lane = 0; lane < lanes; ++lane) {
    const size_t place = (static_cast<size_t>(lane % ranks) * part_words + kSumWords +
                          4 * static_cast<size_t>(lane / ranks)) *
                         8;
    made.places.push_back(static_cast<uint32_t>(place));
    // Sums of thirds depend on the order.
    const collectives::LaneStatistics of_lane = {
        {loss_of_lane / (3 + lane), 4, static_cast<double>(lane % 3), 2}};
    std::memcpy(bytes + place, &of_lane, sizeof(of_lane));
    made.expected.loss_sum += of_lane.values[0];
    made.expected.valid_count += of_lane.values[1];
    made.expected.correct_count += of_lane.values[2];
    made.expected.top5_count += of_lane.values[3];
  }
  made.expected.squared_norm = all.value();
  made.gathered = {bytes, part_words * 8, ranks, made.places.data(), lanes};
  return made;
}

void check(const Reported& made, const exec::UpdateRule& rule, bool open) {
  collectives::StepSums sums;
  cuda::GateState gate = {-1, 7};
  cuda::decide_update(made.gathered, rule, &sums, &gate, nullptr);
  EXPECT_EQ(test::bytes_of(std::vector<collectives::StepSums>{sums}),
            test::bytes_of(std::vector<collectives::StepSums>{made.expected}));
  const exec::UpdateDecision decision = exec::decide(rule, made.expected);
  EXPECT_EQ(gate.open, open ? 1u : 0u);
  EXPECT_EQ(decision.finite, open);
  if (open) {
    EXPECT_EQ(gate.gradient_scale, static_cast<float>(decision.gradient_scale));
  }
}

TEST(CudaUpdateGateTest, HasTheSumsAndTheDecisionOfTheHost) {
  const exec::UpdateRule rule = {.rows = 64, .loss_scale = 8, .clip_norm = 0.5, .squares = true};
  for (const int ranks : {1, 3, 40}) {
    for (const int lanes : {ranks, 4 * ranks - 1, 800})
      check(report(ranks, lanes, 3, 7), rule, true);
  }
  check(report(2, 4, 3, 7), {.rows = 64}, true);
}

TEST(CudaUpdateGateTest, WhatIsNotFiniteClosesTheGate) {
  const exec::UpdateRule rule = {.rows = 64, .squares = true};
  check(report(3, 8, kInfinity, 7), rule, false);
  check(report(3, 8, 3, kInfinity), rule, false);
  check(report(3, 8, 3, -kInfinity), rule, false);
  check(report(3, 8, kNan, 7), rule, false);
  // The norm is finite, but not its square as a float.
  check(report(3, 8, 0x1p140, 7), rule, false);
  check(report(3, 8, 0x1p140, 7), {.rows = 64, .squares = false}, true);
  check(report(3, 8, 0x1p140, 7), {.rows = 64, .clip_norm = 1, .squares = true}, true);
}

TEST(CudaUpdateGateTest, UpdatesPassIt) {
  constexpr int64_t kElements = 1027;
  const exec::OptimizerUpdate constants = exec::SgdUpdate{0.5f, 0, 0, 100.0f, false},
                              wanted = exec::SgdUpdate{0.5f, 0, 0, 0.25f, false};
  const auto run = [&](const exec::OptimizerUpdate& update, const cuda::GateState* gate) {
    std::vector<float> p(kElements), g(kElements);
    test::fill_uniform(p, -1, 1, 1);
    test::fill_uniform(g, -1, 1, 2);
    const exec::OptimizerSlice slice = {
        .elements = kElements, .parameters = p.data(), .gradients = g.data()};
    cuda::PlacedSlice table[1];
    const uint32_t blocks = cuda::place_slices({&slice, 1}, {&update, 1}, &update, table);
    cuda::optimizer_update<float>(table, 1, blocks, gate, nullptr);
    return p;
  };
  std::vector<float> before(kElements);
  test::fill_uniform(before, -1, 1, 1);
  const cuda::GateState closed = {0.25f, 0}, open = {0.25f, 1};
  EXPECT_EQ(run(constants, &closed), before);
  EXPECT_EQ(run(constants, &open), run(wanted, nullptr));
  EXPECT_NE(run(constants, &open), before);
}

}  // namespace
}  // namespace lockstep::test
