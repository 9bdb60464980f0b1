// Catches: moments of two bytes whose bits depend on ranks, stages or a resume, that take four
// bytes all the same, that checkpoints do not hold as they are, that damage to them goes unseen, or
// that train to another loss.
#include <gtest/gtest.h>

#include "tests/unit/train/moment_runs.h"

namespace lockstep::train {
namespace {

testing::Changes changes(const std::string& optimizer, testing::Changes more = {}) {
  more.push_back("optimizer.moments=BF16");
  if (optimizer == "sgd") return more;
  more.push_back("optimizer." + optimizer + ".weight_decay=0.01");
  more.push_back(optimizer == "lars" || optimizer == "lamb" ? "schedule.lr=0.1"
                                                            : "schedule.lr=0.002");
  return more;
}

const testing::Changes kFloats = {"optimizer.adamw.weight_decay=0.01", "schedule.lr=0.002"};

class HalfMoments : public ::testing::TestWithParam<std::string> {};

TEST_P(HalfMoments, SameBitsOnRanksAndInStages) {
  testing::expect_same_bits_on_ranks(changes(GetParam()));
}

TEST_P(HalfMoments, ResumesToTheSameBits) {
  testing::expect_same_bits_resumed(changes(GetParam(), {"train.ema_decay=0.9"}), 2);
}

INSTANTIATE_TEST_SUITE_P(Optimizers,
                         HalfMoments,
                         ::testing::Values("sgd", "adam", "adamw", "lion", "lars", "lamb"),
                         [](const auto& info) { return info.param; });

TEST(HalfMomentsMemory, RowsAreHalfOfFloats) {
  const testing::Changes adamw = {"optimizer.adamw.weight_decay=0.01", "train.ema_decay=0.9"};
  testing::Changes halves = adamw;
  halves.push_back("optimizer.moments=BF16");
  const plan::Plan floats = testing::plan_of(adamw), half = testing::plan_of(halves);
  const auto flat = static_cast<size_t>(floats.layout.elements);
  EXPECT_EQ(floats.memory.row_bytes(plan::RowKind::kMoments), flat * 12);
  EXPECT_EQ(half.memory.row_bytes(plan::RowKind::kMoments),
            flat * 8);  // two of two bytes, and the average
  EXPECT_EQ(half.memory.row_bytes(plan::RowKind::kMomentsSnapshot), flat * 8);
}

TEST(HalfMomentsCheckpoint, HoldsThemInTwoBytes) {
  testing::expect_stored_as("BF16", changes("adamw"));
}

TEST(HalfMomentsCheckpoint, OfAnotherTypeAreConverted) {
  testing::TemporaryFolder folder;
  const uint64_t converted = testing::expect_converted(kFloats, changes("adamw"));
  EXPECT_NE(converted, testing::train_gpt(folder.path() / "floats", kFloats).weights_hash);
}

TEST(HalfMomentsGuard, SeesAFlippedBit) { testing::expect_guarded(changes("adamw"), "exp_avg"); }

// Rounding to 8 bits moves a step by some thousandths, one way or the other.
TEST(HalfMomentsLoss, IsCloseToThatOfFloats) {
  testing::expect_close_to(kFloats, changes("adamw"), 0.01);
}

}  // namespace
}  // namespace lockstep::train
