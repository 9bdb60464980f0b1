// Catches: candidates of this lane or rank alone, a gradient that lacks what other lanes' anchors
// add to a candidate, one that counts it twice, a lane whose vectors are taken for another one's,
// bits that depend on ranks or on the ZeRO stage.
#include <gtest/gtest.h>

#include <fstream>

#include "runtime/base/json.h"
#include "tests/reference/runs.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep::train {
namespace {

std::string text(int i, int salt) {
  std::string words;
  for (int k = 0; k < 2 + (i + salt) % 7; ++k)
    words +=
        fmt::format("{}w{}", k == 0 ? "" : " ", (i * 7 + k * k * 3 + salt * 5 * k + salt) % 30);
  return words;
}

class Contrastive : public ::testing::Test {
 protected:
  Contrastive() {
    std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n", rows;
    for (int i = 0; i < 30; ++i) vocabulary += fmt::format("w{}\n", i);
    for (int i = 0; i < 60; ++i)
      rows += fmt::format("{}\t{}\t{}\n", text(i, 0), text(i, 1), text(i, 2));
    folder_.write("vocab.txt", vocabulary);
    folder_.write("train.tsv", "anchor\tpositive\tnegative\n" + rows);
  }

  struct Run {
    uint64_t weights = 0;
    std::vector<double> losses;
  };
  Run train(std::vector<std::string> overrides, int ranks = 1) {
    const std::filesystem::path out = folder_.path() / fmt::format("run-{}", ++runs_);
    testing::Training training;
    training.config = R"(
        model { bert { layers: 1 heads: 2 width: 16 mlp_width: 24 context: 10 task: EMBEDDINGS } }
        data {
          text_pairs { train: "train.tsv" tokenizer: "vocab.txt" }
          shuffle: false
        }
        train { global_batch: 12 lanes: 4 steps: 20 }
        schedule { lr: 0.1 }
        checkpoint { at_end: false })";
    overrides.push_back("data.dir=" + folder_.path().string());
    training.overrides = std::move(overrides);
    training.ranks = ranks;
    Run run{testing::train_in(out, training).weights_hash, {}};
    std::ifstream lines(out / "metrics.jsonl");
    for (std::string line; std::getline(lines, line);)
      run.losses.push_back(Json::parse(line)["loss"].get<double>());
    return run;
  }

  static std::vector<std::string> sgd() {
    return {"model.bert.pooling=MEAN", "optimizer.sgd.momentum=0.9"};
  }
  // Everything else.
  static std::vector<std::string> adamw() {
    return {"model.bert.pooling=FIRST_TOKEN",
            "data.text_pairs.negative=negative",
            "train.contrastive.temperature=0.1",
            "train.contrastive.learn_temperature=true",
            "train.contrastive.symmetric=true",
            "optimizer.adamw.weight_decay=0",
            "schedule.lr=0.01"};
  }
  static std::vector<std::string> with(std::vector<std::string> overrides,
                                       const std::string& more) {
    overrides.push_back(more);
    return overrides;
  }

  // With losses that rounding does not drive apart.
  static std::vector<std::string> slow_sgd() { return with(sgd(), "schedule.lr=0.01"); }
  static std::vector<std::string> slow_adamw() {
    return with(with(adamw(), "model.bert.pooling=MEAN"), "schedule.lr=0.003");
  }

  testing::TemporaryFolder folder_;
  int runs_ = 0;
};

void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 2e-5 * expected[i]) << "step " << i;
}

// Golden losses: torch 2.15 and transformers 5.24, in double precision, trained the same network
// from the same initial weights, with the loss of the whole batch.
TEST_F(Contrastive, LossesAreThoseOfPyTorchForTheWholeBatch) {
  expect_near(
      train(slow_sgd()).losses,
      {2.962933548, 2.476946945, 2.463987937, 2.473934074, 2.487863554, 2.441782159, 2.474533005,
       2.469197292, 2.475338271, 2.481503247, 2.455983756, 2.473613244, 2.468632720, 2.474293316,
       2.479041946, 2.458556778, 2.472061795, 2.466860084, 2.472712404, 2.477294900});
  expect_near(
      train(slow_adamw()).losses,
      {3.043151168, 2.910415022, 2.827690310, 2.761183359, 2.900937967, 2.569937237, 2.679718801,
       2.625695641, 2.622199709, 2.783711773, 2.392669098, 2.499097677, 2.310960037, 2.283773388,
       2.664211277, 2.007491454, 2.103491658, 1.682754100, 1.551219384, 2.697141269});
}

TEST_F(Contrastive, LanesTogetherAreLikeOneBatch) {
  for (const auto& overrides : {slow_sgd(), slow_adamw()})
    expect_near(train(overrides).losses, train(with(overrides, "train.lanes=1")).losses);
}

TEST_F(Contrastive, HasTheSameBitsOnAnyRanksAndInEveryStage) {
  for (const auto& overrides : {with(sgd(), "train.steps=6"), with(adamw(), "train.steps=6")}) {
    const uint64_t alone = train(overrides).weights;
    for (const int ranks : {2, 3, 4}) EXPECT_EQ(train(overrides, ranks).weights, alone) << ranks;
    EXPECT_EQ(train(with(overrides, "execution.recompute=BLOCKS"), 2).weights, alone);
    EXPECT_EQ(train(with(overrides, "comm.zero_stage=1"), 2).weights, alone);
    for (const char* stage : {"2", "3"})
      EXPECT_EQ(train(with(overrides, std::string("comm.zero_stage=") + stage), 4).weights, alone)
          << stage;
  }
}

}  // namespace
}  // namespace lockstep::train
