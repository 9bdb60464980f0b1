// Catches: moments of one byte whose bits depend on ranks, stages or a resume, that take more
// memory than is planned, that checkpoints do not hold as they are, that damage to them goes
// unseen, or that train to another loss.
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/checkpoint/format/reader.h"
#include "tests/reference/prepared.h"
#include "tests/reference/runs.h"

namespace lockstep::train {
namespace {

std::vector<std::string> changes(const std::string& optimizer, std::vector<std::string> more = {}) {
  more.push_back("optimizer.moments=INT8");
  more.push_back("optimizer." + optimizer + ".weight_decay=0.01");
  if (optimizer == "adam") more.emplace_back("optimizer.adam.amsgrad=true");
  if (optimizer == "sgd") more.emplace_back("optimizer.sgd.momentum=0.9");
  if (optimizer == "adagrad") more.emplace_back("optimizer.adagrad.initial_accumulator=0.1");
  more.push_back(optimizer == "lars" || optimizer == "lamb" ? "schedule.lr=0.1"
                                                            : "schedule.lr=0.002");
  return more;
}

class BlockMoments : public ::testing::TestWithParam<std::string> {};

TEST_P(BlockMoments, SameBitsOnRanksAndInStages) {
  testing::TemporaryFolder folder;
  const TrainResult alone = testing::train_in(
      folder.path() / "alone", {testing::gpt_config(), 1, testing::whole(), changes(GetParam())});
  for (const auto& [ranks, stage] : {std::pair(2, "0"), {3, "1"}, {4, "2"}, {2, "3"}}) {
    testing::Training training = {testing::gpt_config(),
                                  ranks,
                                  testing::whole(),
                                  changes(GetParam(), {std::string("comm.zero_stage=") + stage})};
    training.shares_memory = std::string(stage) != "3";
    const TrainResult many = testing::train_in(folder.path() / stage, training);
    EXPECT_EQ(many.weights_hash, alone.weights_hash) << ranks << " ranks in stage " << stage;
  }
}

TEST_P(BlockMoments, ResumesToTheSameBits) {
  testing::TemporaryFolder folder;
  const auto all = changes(GetParam(), {"train.ema_decay=0.9"});
  const TrainResult whole =
      testing::train_in(folder.path() / "whole", {testing::gpt_config(), 1, testing::whole(), all});
  testing::train_in(folder.path() / "cut", {testing::gpt_config(), 4, testing::until(17), all, 2});
  const TrainResult resumed =
      testing::train_in(folder.path() / "cut", {testing::gpt_config(), 3, testing::resumed(), all});
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
}

INSTANTIATE_TEST_SUITE_P(Optimizers,
                         BlockMoments,
                         ::testing::Values("sgd", "adam", "adagrad", "lamb", "muon"),
                         [](const auto& info) { return info.param; });

TEST(BlockMomentsMemory, RowsAreABytePerElement) {
  const plan::Plan plan =
      testing::prepare(
          config::parse_config(
              testing::gpt_config(), "test", changes("adamw", {"train.ema_decay=0.9"})),
          collectives::Topology::flat(1),
          run::RunPurpose::kTrain,
          cpu::make_backend()->ops())
          .plan;
  const auto blocks = static_cast<size_t>(plan.layout.elements) / 256;
  const size_t moment = (blocks * 260 + 63) / 64 * 64;
  EXPECT_EQ(plan.memory.row_bytes(plan::RowKind::kMoments),
            2 * moment + blocks * 256 * 4);  // and the average
  for (const plan::ParameterSlot& slot : plan.layout.slots) EXPECT_EQ(slot.offset % 256, 0);
}

TEST(BlockMomentsCheckpoint, HoldsTheBlocks) {
  testing::TemporaryFolder folder;
  testing::train_in(folder.path() / "run",
                    {testing::gpt_config(), 2, testing::until(15), changes("adamw")});
  const auto checkpoint = folder.path() / "run" / "checkpoints" / "step-00000015";
  const checkpoint::SafetensorsFile file(checkpoint / "optimizer-00000-of-00002.safetensors");
  ASSERT_FALSE(file.header().entries.empty());
  for (const checkpoint::SafetensorsEntry& entry : file.header().entries)
    EXPECT_EQ(entry.dtype, "U8");
  EXPECT_TRUE(checkpoint::verify(checkpoint).empty());
}

// From floats to blocks and back, on any number of ranks to the same bits.
TEST(BlockMomentsCheckpoint, OfAnotherTypeAreConverted) {
  testing::TemporaryFolder folder;
  const std::vector<std::string> floats = {"optimizer.adamw.weight_decay=0.01",
                                           "schedule.lr=0.002"};
  for (const bool to_blocks : {true, false}) {
    std::vector<uint64_t> hashes;
    for (const int ranks : {1, 2}) {
      const auto run = folder.path() / fmt::format("{}-{}", to_blocks, ranks);
      const auto first = to_blocks ? floats : changes("adamw"),
                 second = to_blocks ? changes("adamw") : floats;
      testing::train_in(run, {testing::gpt_config(), 1, testing::until(15), first});
      hashes.push_back(
          testing::train_in(run, {testing::gpt_config(), ranks, testing::resumed(), second})
              .weights_hash);
    }
    EXPECT_EQ(hashes[0], hashes[1]) << to_blocks;
  }
}

TEST(BlockMomentsGuard, SeesAFlippedBit) {
  testing::TemporaryFolder folder;
  testing::Training training = {
      testing::gpt_config(), 1, testing::whole(), changes("adamw", {"train.lanes=1"})};
  training.meddle = [](const testing::RankUnderTest& rank) {
    rank.backend.on_lane = [&backend = rank.backend](const graph::LaneContext& lane) {
      if (lane.step != 7) return;
      backend.row(plan::name_of(plan::RowKind::kMoments))[1] ^= std::byte{2};
    };
  };
  try {
    testing::train_in(folder.path() / "run", training);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("moment exp_avg"), std::string::npos) << error.what();
  }
}

TEST(BlockMomentsLoss, IsCloseToThatOfFloats) {
  testing::TemporaryFolder folder;
  const std::vector<std::string> floats = {"optimizer.adamw.weight_decay=0.01",
                                           "schedule.lr=0.002"};
  const TrainResult with_floats =
      testing::train_in(folder.path() / "f", {testing::gpt_config(), 1, testing::whole(), floats});
  const TrainResult blocks = testing::train_in(
      folder.path() / "b", {testing::gpt_config(), 1, testing::whole(), changes("adamw")});
  EXPECT_NE(blocks.weights_hash, with_floats.weights_hash);
  // The map's values are up to some hundredths apart, and a step moves by about as much.
  EXPECT_NEAR(*blocks.loss, *with_floats.loss, 0.02 * *with_floats.loss);
}

}  // namespace
}  // namespace lockstep::train
