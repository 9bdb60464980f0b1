// Catches: RMSprop, Adagrad and AMSGrad whose bits depend on ranks, stages or a resume, whose
// moments are not planned or not under PyTorch's names in checkpoints, and a third moment that is
// unguarded.
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/checkpoint/format/reader.h"
#include "tests/reference/prepared.h"
#include "tests/reference/runs.h"

namespace lockstep::train {
namespace {

struct Kind {
  std::string name;
  std::vector<std::string> changes;
  std::vector<std::string> moments;
};

const Kind kKinds[] = {
    {"rmsprop", {"optimizer.rmsprop.weight_decay=0.01"}, {"square_avg"}},
    {"rmsprop_centred",
     {"optimizer.rmsprop.centred=true", "optimizer.rmsprop.momentum=0.5"},
     {"square_avg", "momentum_buffer", "grad_avg"}},
    {"adagrad",
     {"optimizer.adagrad.initial_accumulator=0.1", "optimizer.adagrad.lr_decay=0.01"},
     {"sum"}},
    {"adam_amsgrad",
     {"optimizer.adam.amsgrad=true", "optimizer.moments=BF16"},
     {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
    {"adamw_amsgrad",
     {"optimizer.adamw.amsgrad=true",
      "optimizer.adamw.weight_decay=0.01",
      "optimizer.adamw.beta2=0.5"},
     {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}}};

// They end with a rate of 0.002 * 0.95^29.
std::vector<std::string> changes(const Kind& kind, std::vector<std::string> more = {}) {
  more.insert(more.end(), kind.changes.begin(), kind.changes.end());
  for (const char* change : {"schedule.lr=0.002",
                             "schedule.kind=EXPONENTIAL",
                             "schedule.gamma=0.95",
                             "train.ema_decay=0.9"})
    more.emplace_back(change);
  return more;
}

class AdaptiveRuns : public ::testing::TestWithParam<Kind> {};

TEST_P(AdaptiveRuns, SameBitsOnRanksAndInStages) {
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

TEST_P(AdaptiveRuns, ResumesToTheSameBits) {
  testing::TemporaryFolder folder;
  const auto all = changes(GetParam());
  const TrainResult whole =
      testing::train_in(folder.path() / "whole", {testing::gpt_config(), 1, testing::whole(), all});
  testing::train_in(folder.path() / "cut", {testing::gpt_config(), 4, testing::until(17), all, 2});
  const TrainResult resumed =
      testing::train_in(folder.path() / "cut", {testing::gpt_config(), 2, testing::resumed(), all});
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
  std::vector<std::string> kept = GetParam().moments;
  kept.push_back(checkpoint::kAverageArray);
  EXPECT_EQ(checkpoint::read_state(folder.path() / "cut" / "checkpoints" / "step-00000030").moments,
            kept);
}

INSTANTIATE_TEST_SUITE_P(Kinds, AdaptiveRuns, ::testing::ValuesIn(kKinds), [](const auto& info) {
  return info.param.name;
});

run::PreparedRun prepared(const std::vector<std::string>& overrides) {
  return testing::prepare(config::parse_config(testing::gpt_config(), "test", overrides),
                          collectives::Topology::flat(1),
                          run::RunPurpose::kTrain,
                          cpu::make_backend()->ops());
}

TEST(AdaptiveMemory, HasARowOfAllMoments) {
  const plan::Plan one = prepared({"optimizer.adagrad={}"}).plan;
  const auto flat = static_cast<size_t>(one.layout.elements);
  EXPECT_EQ(one.memory.row_bytes(plan::RowKind::kMoments), flat * 4);
  const plan::Plan three = prepared(kKinds[1].changes).plan;
  EXPECT_EQ(three.memory.row_bytes(plan::RowKind::kMoments), flat * 12);
  const plan::Plan halves = prepared(kKinds[3].changes).plan;
  EXPECT_EQ(halves.memory.row_bytes(plan::RowKind::kMoments), flat * 6);
}

// Adagrad's sums begin with the configured value, not with 0.
TEST(AdaptiveRun, AdagradBeginsWithItsAccumulator) {
  testing::TemporaryFolder folder;
  const auto run = [&](const std::string& value) {
    return testing::train_in(folder.path() / value,
                             {testing::gpt_config(),
                              2,
                              testing::until(3),
                              {"optimizer.adagrad.initial_accumulator=" + value}})
        .weights_hash;
  };
  EXPECT_NE(run("0"), run("0.5"));
}

TEST(AdaptiveGuard, SeesAFlippedBitOfTheThirdMoment) {
  testing::TemporaryFolder folder;
  testing::Training training = {
      testing::gpt_config(), 1, testing::whole(), changes(kKinds[1], {"train.lanes=1"})};
  training.meddle = [](const testing::RankUnderTest& rank) {
    rank.backend.on_lane = [&rank](const graph::LaneContext& lane) {
      if (lane.step != 7) return;
      const auto elements = static_cast<size_t>(rank.prepared.plan.layout.elements);
      rank.backend.row(plan::name_of(plan::RowKind::kMoments))[elements * 8 + 1] ^= std::byte{2};
    };
  };
  try {
    testing::train_in(folder.path() / "run", training);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("moment grad_avg"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::train
