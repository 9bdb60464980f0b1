// Catches: moments of one byte whose bits depend on ranks, stages or a resume, that take more
// memory than is planned, that checkpoints do not hold as they are, that damage to them goes
// unseen, or that train to another loss.
#include <gtest/gtest.h>

#include "tests/unit/train/moment_runs.h"

namespace lockstep::train {
namespace {

testing::Changes changes(const std::string& optimizer, testing::Changes more = {}) {
  more.push_back("optimizer.moments=INT8");
  more.push_back("optimizer." + optimizer + ".weight_decay=0.01");
  if (optimizer == "adam") more.emplace_back("optimizer.adam.amsgrad=true");
  if (optimizer == "sgd") more.emplace_back("optimizer.sgd.momentum=0.9");
  if (optimizer == "adagrad") more.emplace_back("optimizer.adagrad.initial_accumulator=0.1");
  more.push_back(optimizer == "lars" || optimizer == "lamb" ? "schedule.lr=0.1"
                                                            : "schedule.lr=0.002");
  return more;
}

const testing::Changes kFloats = {"optimizer.adamw.weight_decay=0.01", "schedule.lr=0.002"};

class BlockMoments : public ::testing::TestWithParam<std::string> {};

TEST_P(BlockMoments, SameBitsOnRanksAndInStages) {
  testing::expect_same_bits_on_ranks(changes(GetParam()));
}

TEST_P(BlockMoments, ResumesToTheSameBits) {
  testing::expect_same_bits_resumed(changes(GetParam(), {"train.ema_decay=0.9"}), 3);
}

INSTANTIATE_TEST_SUITE_P(Optimizers,
                         BlockMoments,
                         ::testing::Values("sgd", "adam", "adagrad", "lamb", "muon"),
                         [](const auto& info) { return info.param; });

TEST(BlockMomentsMemory, RowsAreABytePerElement) {
  const plan::Plan plan = testing::plan_of(changes("adamw", {"train.ema_decay=0.9"}));
  const auto blocks = static_cast<size_t>(plan.layout.elements) / 256;
  const size_t moment = (blocks * 260 + 63) / 64 * 64;
  EXPECT_EQ(plan.memory.row_bytes(plan::RowKind::kMoments),
            2 * moment + blocks * 256 * 4);  // and the average
  for (const plan::ParameterSlot& slot : plan.layout.slots) EXPECT_EQ(slot.offset % 256, 0);
}

TEST(BlockMomentsCheckpoint, HoldsTheBlocks) { testing::expect_stored_as("U8", changes("adamw")); }

TEST(BlockMomentsCheckpoint, OfAnotherTypeAreConverted) {
  testing::expect_converted(kFloats, changes("adamw"));
  testing::expect_converted(changes("adamw"), kFloats);
}

TEST(BlockMomentsGuard, SeesAFlippedBit) { testing::expect_guarded(changes("adamw"), "exp_avg"); }

// The map's values are up to some hundredths apart, and a step moves by about as much.
TEST(BlockMomentsLoss, IsCloseToThatOfFloats) {
  testing::expect_close_to(kFloats, changes("adamw"), 0.02);
}

}  // namespace
}  // namespace lockstep::train
