// Catches: bits that depend on the number of ranks, a resumed run that differs from one that was
// never interrupted, an early stop or a best checkpoint that is off, and a run that goes on with
// numbers that are not finite, or that blames other ops or the learning rate for them.
#include "runtime/train/trainer.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "collectives/agree/agreement.h"
#include "runtime/base/threads.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/cpu/matmul/tile_units.h"
#include "tests/reference/runs.h"
#include "tests/unit/train/onnx_configs.h"

namespace lockstep::train {
namespace {

using testing::resumed;
using testing::TemporaryFolder;
using testing::train_in;
using testing::TrainOptions;
using testing::until;
using testing::whole;

class TrainerTest : public ::testing::TestWithParam<std::string> {};

TEST_P(TrainerTest, SameBitsOnAnyNumberOfRanks) {
  TemporaryFolder folder;
  const TrainResult alone = train_in(folder.path() / "1", {GetParam(), 1, whole(), {}});
  for (int ranks : {2, 4, 8}) {
    const TrainResult many =
        train_in(folder.path() / std::to_string(ranks), {GetParam(), ranks, whole(), {}});
    EXPECT_EQ(many.weights_hash, alone.weights_hash) << ranks << " ranks";
    EXPECT_EQ(many.loss, alone.loss) << ranks << " ranks";
  }
}

TEST_P(TrainerTest, ResumesOnAnotherNumberOfRanksToTheSameBits) {
  TemporaryFolder folder;
  const TrainResult expected = train_in(folder.path() / "whole", {GetParam(), 1, whole(), {}});
  for (const auto& [before, after] : {std::pair(1, 4), std::pair(4, 2), std::pair(8, 1)}) {
    const auto run = folder.path() / std::to_string(before);
    train_in(run, {GetParam(), before, until(17), {}});
    const TrainResult after_resume = train_in(run, {GetParam(), after, resumed(), {}});
    EXPECT_EQ(after_resume.weights_hash, expected.weights_hash)
        << before << " then " << after << " ranks";
    EXPECT_EQ(after_resume.step, expected.step);
  }
}

TEST_P(TrainerTest, TheLossFalls) {
  TemporaryFolder folder;
  const TrainResult first = train_in(folder.path() / "a", {GetParam(), 1, until(1), {}});
  const TrainResult last =
      train_in(folder.path() / "b", {GetParam(), 1, whole(), {"train.steps=200"}});
  EXPECT_LT(*last.loss, 0.8 * *first.loss);
}

// Products of bfloat16 by a matrix unit, which is emulated if this processor has none.
TEST_P(TrainerTest, TilesGiveTheSameBitsOnAnyNumberOfRanks) {
  TemporaryFolder folder;
  const auto hash = [&](int ranks, int stage) {
    const std::string name = std::to_string(ranks) + "-" + std::to_string(stage);
    return train_in(folder.path() / name,
                    {GetParam(),
                     ranks,
                     whole(),
                     {"execution.precision=BF16", "comm.zero_stage=" + std::to_string(stage)}})
        .weights_hash;
  };
  const cpu::tiles::ScopedTiles scope(true);
  const auto alone = hash(1, 1);
  for (const auto& [ranks, stage] : {std::pair(2, 0), {2, 1}, {4, 2}, {8, 3}})
    EXPECT_EQ(hash(ranks, stage), alone) << ranks << " ranks, stage " << stage;
  const cpu::tiles::ScopedTiles without(false);
  EXPECT_NE(hash(1, 0), alone);
}

INSTANTIATE_TEST_SUITE_P(Models,
                         TrainerTest,
                         ::testing::Values(testing::mlp_config(), testing::gpt_config()),
                         [](const auto& info) { return info.index == 0 ? "mlp" : "gpt"; });

// Tensors that are large enough to be shared by many threads. There are new threads for each lane
// and phase: a loop that loses time, as most do here, makes the next ones stay on one thread.
TEST(Trainer, SameBitsOnManyMoreThreadsThanCores) {
  const std::string config = R"(
    model { mlp { hidden: [512, 384] activation: GELU_TANH dropout: 0.2 } }
    data { synthetic { samples: 512 features: 256 classes: 10 } }
    train { global_batch: 256 lanes: 2 steps: 4 log_every: 1000000 }
    optimizer { adamw { weight_decay: 0.1 } clip_norm: 1 }
    schedule { lr: 0.01 }
    checkpoint { every: 0 })";
  TemporaryFolder folder;
  std::vector<uint64_t> hashes;
  for (const int threads : {1, 64, 128}) {
    const auto renew = [=] {
      set_compute_threads(1);
      set_compute_threads(threads);
    };
    renew();  // before memory is allocated
    const auto meddle = [&](const testing::RankUnderTest& rank) {
      rank.backend.on_lane = [=](const graph::LaneContext&) { renew(); };
      rank.backend.on_mark = [=](exec::Backend::Mark) { renew(); };
    };
    hashes.push_back(
        train_in(folder.path() / std::to_string(threads), {.config = config, .meddle = meddle})
            .weights_hash);
    set_compute_threads(1);
  }
  EXPECT_EQ(hashes[1], hashes[0]) << "64 threads";
  EXPECT_EQ(hashes[2], hashes[0]) << "128 threads";
}

TEST(Trainer, RecomputedBlocksGiveTheSameBits) {
  TemporaryFolder folder;
  const TrainResult kept =
      train_in(folder.path() / "kept", {testing::gpt_config(), 1, whole(), {}});
  const TrainResult recomputed =
      train_in(folder.path() / "recomputed",
               {testing::gpt_config(), 2, whole(), {"execution.recompute=BLOCKS"}});
  EXPECT_EQ(recomputed.weights_hash, kept.weights_hash);
  EXPECT_EQ(recomputed.loss, kept.loss);
}

TEST(Trainer, FastOrderTrainsToo) {
  TemporaryFolder folder;
  const TrainResult tree =
      train_in(folder.path() / "tree", {testing::mlp_config(), 4, whole(), {}});
  const TrainResult fast =
      train_in(folder.path() / "fast", {testing::mlp_config(), 4, whole(), {"comm.order=FAST"}});
  EXPECT_NEAR(*fast.loss, *tree.loss, 0.05 * *tree.loss);
}

TEST(Trainer, RefusesToMixRuns) {
  TemporaryFolder folder;
  train_in(folder.path(), {testing::mlp_config(), 1, whole(), {}});
  EXPECT_THROW(train_in(folder.path(), {testing::mlp_config(), 1, whole(), {}}),
               collectives::AgreedError);
  for (const char* change : {"train.global_batch=64", "seed=9", "optimizer.sgd.momentum=0.5"}) {
    try {
      train_in(folder.path(), {testing::mlp_config(), 2, resumed(), {change}});
      ADD_FAILURE() << change;
    } catch (const collectives::AgreedError& error) {
      EXPECT_EQ(error.code(), ExitCode::kCheckpoint) << error.what();
    }
  }
}

TEST(Trainer, ResumesFromThePreviousCheckpointWhenTheNewestIsDamaged) {
  TemporaryFolder folder;
  const TrainResult expected =
      train_in(folder.path() / "whole", {testing::mlp_config(), 1, whole(), {}});
  train_in(folder.path() / "cut", {testing::mlp_config(), 2, until(30), {}});
  const auto newest = checkpoint::list_checkpoints(folder.path() / "cut" / "checkpoints").back();
  ASSERT_EQ(newest.step, 30);
  std::filesystem::resize_file(newest.path / "model.safetensors",
                               std::filesystem::file_size(newest.path / "model.safetensors") - 1);
  const TrainResult after_resume =
      train_in(folder.path() / "cut", {testing::mlp_config(), 1, resumed(), {}});
  EXPECT_EQ(after_resume.weights_hash, expected.weights_hash);
}

// Catches: two histories in one run folder, and a new checkpoint removed for an old one of a later
// step.
TEST(Trainer, DoesNotBranchWithinARunFolder) {
  TemporaryFolder folder;
  const std::vector<std::string> often = {"checkpoint.every=5", "checkpoint.keep_last=8"};
  train_in(folder.path() / "a", {testing::mlp_config(), 1, whole(), often});
  TrainOptions from_ten{.resume = folder.path() / "a/checkpoints/step-00000010", .max_steps = 12};
  EXPECT_THROW(train_in(folder.path() / "a", {testing::mlp_config(), 2, from_ten, often}),
               collectives::AgreedError);
  const TrainResult branch =
      train_in(folder.path() / "b", {testing::mlp_config(), 2, from_ten, often});
  EXPECT_EQ(branch.step, 12);
  EXPECT_EQ(checkpoint::list_checkpoints(folder.path() / "b/checkpoints").back().step, 12);
  EXPECT_EQ(checkpoint::list_checkpoints(folder.path() / "a/checkpoints").back().step, 40);
}

TEST(Trainer, KeepsTheLastCheckpoints) {
  TemporaryFolder folder;
  train_in(folder.path(),
           {testing::mlp_config(), 2, whole(), {"checkpoint.every=5", "checkpoint.keep_last=3"}});
  const auto kept = checkpoint::list_checkpoints(folder.path() / "checkpoints");
  ASSERT_EQ(kept.size(), 3u);
  EXPECT_EQ(kept.front().step, 30);
  EXPECT_EQ(kept.back().step, 40);
}

TEST(Trainer, NumbersThatAreNotFiniteEndTheRun) {
  TemporaryFolder folder;
  try {
    train_in(folder.path(),
             {testing::mlp_config(), 2, whole(), {"schedule.lr=1e30", "optimizer.sgd.momentum=0"}});
    ADD_FAILURE();
  } catch (const collectives::AgreedError& error) {
    EXPECT_EQ(error.code(), ExitCode::kNumeric) << error.what();
  }
}

// Images, whose classes are a softmax of which a mask hides each row as a whole: chosen, or added
// as the logarithm of truth.
std::string hidden_rows_config(bool chosen) {
  namespace b = testing::onnx_bytes;
  const auto scalar = [](float value) {
    return b::tensor_attribute(
        "value", b::tensor("", {}, b::kFloat, b::bytes(9, b::raw(std::vector<float>{value}))));
  };
  std::vector<std::string> nodes = {
      b::node("Flatten", {"x"}, {"f"}),
      b::node("Gemm", {"f", "first.weight", "first.bias"}, {"scores"}),
      b::node("Greater", {"scores", "scores"}, {"seen"}),
      b::node("Constant", {}, {"hidden"}, "", {scalar(-std::numeric_limits<float>::infinity())}),
      b::node("Cast", {"seen"}, {"number"}, "", {b::integer_attribute("to", b::kFloat)}),
      b::node("Log", {"number"}, {"added"})};
  nodes.push_back(chosen ? b::node("Where", {"seen", "scores", "hidden"}, {"masked"})
                         : b::node("Add", {"scores", "added"}, {"masked"}));
  nodes.push_back(b::node("Softmax", {"masked"}, {"shares"}));
  nodes.push_back(b::node("Gemm", {"shares", "last.weight", "last.bias"}, {"y"}));
  return testing::onnx_config(
      chosen ? "chosen" : "added",
      {.nodes = nodes,
       .initializers = {testing::onnx_weight("first.weight", {192, 6}),
                        testing::onnx_weight("first.bias", {6}),
                        testing::onnx_weight("last.weight", {6, 5}),
                        testing::onnx_weight("last.bias", {5})},
       .inputs = {b::value_info("x", b::kFloat, {"batch", "3", "8", "8"})},
       .outputs = {b::value_info("y", b::kFloat, {"batch", "5"})}},
      "synthetic { samples: 300 height: 8 width: 8 channels: 3 classes: 5 }");
}

TEST(Trainer, AMaskThatHidesAWholeRowIsNamed) {
  for (const bool chosen : {true, false}) {
    TemporaryFolder folder;
    try {
      train_in(folder.path(), {hidden_rows_config(chosen), 2, whole(), {}});
      ADD_FAILURE();
    } catch (const collectives::AgreedError& error) {
      EXPECT_EQ(error.code(), ExitCode::kNumeric);
      const std::string text = error.what();
      for (const char* part : {"of the softmax 'shares' is the first that is not a number",
                               "all elements of a row of its input are -infinity",
                               "start again with a mask"})
        EXPECT_NE(text.find(part), std::string::npos) << part << ": " << text;
      EXPECT_EQ(text.find("schedule.lr"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace lockstep::train
