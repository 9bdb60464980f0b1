// Catches: moments of two bytes whose bits depend on ranks, stages or a resume, that take four
// bytes all the same, that checkpoints do not hold as they are, that damage to them goes unseen, or
// that train to another loss.
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/checkpoint/format/reader.h"
#include "tests/reference/prepared.h"
#include "tests/reference/runs.h"

namespace lockstep::train {
namespace {

std::vector<std::string> changes(const std::string& optimizer, std::vector<std::string> more = {}) {
  more.push_back("optimizer.moments=BF16");
  if (optimizer == "sgd") return more;
  more.push_back("optimizer." + optimizer + ".weight_decay=0.01");
  more.push_back(optimizer == "lars" || optimizer == "lamb" ? "schedule.lr=0.1"
                                                            : "schedule.lr=0.002");
  return more;
}

class HalfMoments : public ::testing::TestWithParam<std::string> {};

TEST_P(HalfMoments, SameBitsOnRanksAndInStages) {
  testing::TemporaryFolder folder;
  const TrainResult alone = testing::train_in(
      folder.path() / "1", {testing::gpt_config(), 1, testing::whole(), changes(GetParam())});
  for (const int ranks : {2, 4}) {
    for (const std::string stage : {"0", "1", "3"}) {
      testing::Training training = {testing::gpt_config(),
                                    ranks,
                                    testing::whole(),
                                    changes(GetParam(), {"comm.zero_stage=" + stage})};
      training.shares_memory = stage != "3";
      const TrainResult many =
          testing::train_in(folder.path() / (stage + std::to_string(ranks)), training);
      EXPECT_EQ(many.weights_hash, alone.weights_hash) << ranks << " ranks in stage " << stage;
    }
  }
}

TEST_P(HalfMoments, ResumesToTheSameBits) {
  testing::TemporaryFolder folder;
  const auto all = changes(GetParam(), {"train.ema_decay=0.9"});
  const TrainResult whole =
      testing::train_in(folder.path() / "whole", {testing::gpt_config(), 1, testing::whole(), all});
  testing::train_in(folder.path() / "cut", {testing::gpt_config(), 4, testing::until(17), all, 2});
  const TrainResult resumed =
      testing::train_in(folder.path() / "cut", {testing::gpt_config(), 2, testing::resumed(), all});
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
}

INSTANTIATE_TEST_SUITE_P(Optimizers,
                         HalfMoments,
                         ::testing::Values("sgd", "adam", "adamw", "lion", "lars", "lamb"),
                         [](const auto& info) { return info.param; });

run::PreparedRun assembled(const std::vector<std::string>& overrides) {
  return testing::prepare(config::parse_config(testing::gpt_config(), "test", overrides),
                          collectives::Topology::flat(1),
                          run::RunPurpose::kTrain,
                          cpu::make_backend()->ops());
}

TEST(HalfMomentsMemory, RowsAreHalfOfFloats) {
  const std::vector<std::string> adamw = {"optimizer.adamw.weight_decay=0.01",
                                          "train.ema_decay=0.9"};
  std::vector<std::string> halves = adamw;
  halves.push_back("optimizer.moments=BF16");
  const plan::Plan floats = assembled(adamw).plan, half = assembled(halves).plan;
  const auto flat = static_cast<size_t>(floats.layout.elements);
  EXPECT_EQ(floats.memory.row_bytes(plan::RowKind::kMoments), flat * 12);
  EXPECT_EQ(half.memory.row_bytes(plan::RowKind::kMoments),
            flat * 8);  // two of two bytes, and the average
  EXPECT_EQ(half.memory.row_bytes(plan::RowKind::kMomentsSnapshot), flat * 8);
}

TEST(HalfMomentsCheckpoint, HoldsThemInTwoBytes) {
  testing::TemporaryFolder folder;
  testing::train_in(folder.path() / "run",
                    {testing::gpt_config(), 2, testing::until(15), changes("adamw")});
  const auto checkpoint = folder.path() / "run" / "checkpoints" / "step-00000015";
  const checkpoint::SafetensorsFile file(checkpoint / "optimizer-00000-of-00002.safetensors");
  ASSERT_FALSE(file.header().entries.empty());
  for (const checkpoint::SafetensorsEntry& entry : file.header().entries)
    EXPECT_EQ(entry.dtype, "BF16");
  EXPECT_TRUE(checkpoint::verify(checkpoint).empty());
}

// Moments of another type are converted, on any number of ranks to the same bits.
TEST(HalfMomentsCheckpoint, OfAnotherTypeAreConverted) {
  testing::TemporaryFolder folder;
  const std::vector<std::string> floats = {"optimizer.adamw.weight_decay=0.01",
                                           "schedule.lr=0.002"};
  std::vector<uint64_t> hashes;
  for (const int ranks : {1, 2}) {
    const auto run = folder.path() / std::to_string(ranks);
    testing::train_in(run, {testing::gpt_config(), 1, testing::until(15), floats});
    hashes.push_back(
        testing::train_in(run, {testing::gpt_config(), ranks, testing::resumed(), changes("adamw")})
            .weights_hash);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  const auto whole = testing::train_in(folder.path() / "floats",
                                       {testing::gpt_config(), 1, testing::whole(), floats});
  EXPECT_NE(hashes[0], whole.weights_hash);
}

TEST(HalfMomentsGuard, SeesAFlippedBit) {
  testing::TemporaryFolder folder;
  const auto flip = [](const testing::RankUnderTest& rank) {
    rank.backend.on_lane = [&backend = rank.backend](const graph::LaneContext& lane) {
      if (lane.step != 7) return;
      backend.row(plan::name_of(plan::RowKind::kMoments))[1] ^= std::byte{2};
    };
  };
  testing::Training training = {
      testing::gpt_config(), 1, testing::whole(), changes("adamw", {"train.lanes=1"})};
  training.meddle = flip;
  try {
    testing::train_in(folder.path() / "run", training);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("moment exp_avg"), std::string::npos) << error.what();
  }
}

TEST(HalfMomentsLoss, IsCloseToThatOfFloats) {
  testing::TemporaryFolder folder;
  const std::vector<std::string> floats = {"optimizer.adamw.weight_decay=0.01",
                                           "schedule.lr=0.002"};
  const TrainResult with_floats =
      testing::train_in(folder.path() / "f", {testing::gpt_config(), 1, testing::whole(), floats});
  const TrainResult halves = testing::train_in(
      folder.path() / "h", {testing::gpt_config(), 1, testing::whole(), changes("adamw")});
  EXPECT_NE(halves.weights_hash, with_floats.weights_hash);
  // Rounding to 8 bits moves a step by some thousandths, one way or the other.
  EXPECT_NEAR(*halves.loss, *with_floats.loss, 0.01 * *with_floats.loss);
}

}  // namespace
}  // namespace lockstep::train
