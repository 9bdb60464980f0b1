// Catches: RMSprop, Adagrad and AMSGrad whose bits depend on ranks, stages or a resume, whose
// moments are not planned or not under PyTorch's names in checkpoints, and a third moment that is
// unguarded.
#include <gtest/gtest.h>

#include "tests/unit/train/moment_runs.h"

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
  testing::expect_same_bits_on_ranks(changes(GetParam()));
}

TEST_P(AdaptiveRuns, ResumesToTheSameBits) {
  std::vector<std::string> wanted = GetParam().moments;
  wanted.push_back(checkpoint::kAverageArray);
  EXPECT_EQ(testing::expect_same_bits_resumed(changes(GetParam()), 2), wanted);
}

INSTANTIATE_TEST_SUITE_P(Kinds, AdaptiveRuns, ::testing::ValuesIn(kKinds), [](const auto& info) {
  return info.param.name;
});

TEST(AdaptiveMemory, HasARowOfAllMoments) {
  const plan::Plan one = testing::plan_of({"optimizer.adagrad={}"});
  const auto flat = static_cast<size_t>(one.layout.elements);
  EXPECT_EQ(one.memory.row_bytes(plan::RowKind::kMoments), flat * 4);
  const plan::Plan three = testing::plan_of(kKinds[1].changes);
  EXPECT_EQ(three.memory.row_bytes(plan::RowKind::kMoments), flat * 12);
  const plan::Plan halves = testing::plan_of(kKinds[3].changes);
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
  testing::expect_guarded(changes(kKinds[1]), "grad_avg", 2);
}

}  // namespace
}  // namespace lockstep::train
