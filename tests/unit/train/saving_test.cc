// Catches: a checkpoint that was written while the run went on and is not what the run was at its
// step, a run that other ways to save give other bits, and copies on hosts that do not fit
// together.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "collectives/agree/agreement.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/checkpoint/format/reader.h"
#include "tests/reference/runs.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

using testing::TemporaryFolder;
using testing::train_in;
using testing::TrainOptions;
using testing::whole;

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Way {
  const char* name;
  int ranks;
  std::vector<std::string> overrides;
  bool shares_memory = true;
};

class SavingInTheBackground : public ::testing::TestWithParam<Way> {};

// Its files are those that a run writes which waits for them, and a run that goes on from one comes
// to the same bits.
TEST_P(SavingInTheBackground, SavesWhatTheRunWas) {
  const Way& way = GetParam();
  TemporaryFolder folder;
  const auto train = [&](const char* name,
                         const char* async,
                         const TrainOptions& options = whole()) {
    std::vector<std::string> overrides = {
        "checkpoint.every=7", "checkpoint.keep_last=100", std::string("checkpoint.async=") + async};
    overrides.insert(overrides.end(), way.overrides.begin(), way.overrides.end());
    return train_in(folder.path() / name,
                    {testing::mlp_config(), way.ranks, options, overrides, 1, way.shares_memory});
  };
  const TrainResult expected = train("waits", "false"), result = train("goes on", "true");
  EXPECT_EQ(result.weights_hash, expected.weights_hash);
  const std::vector<checkpoint::CheckpointEntry> saved =
      checkpoint::list_checkpoints(folder.path() / "goes on/checkpoints");
  ASSERT_EQ(saved.size(), 6u);
  for (const checkpoint::CheckpointEntry& entry : saved) {
    EXPECT_EQ(checkpoint::verify(entry.path), std::vector<std::string>());
    const fs::path other = folder.path() / "waits/checkpoints" / entry.path.filename();
    for (const auto& file : fs::directory_iterator(other)) {
      if (file.path().extension() != ".safetensors") continue;
      EXPECT_EQ(bytes_of(entry.path / file.path().filename()), bytes_of(file.path()))
          << entry.step << " " << file.path().filename();
    }
  }
  const TrainResult resumed = train("resumed", "true", {.resume = saved[2].path});
  EXPECT_EQ(resumed.weights_hash, expected.weights_hash);
}

INSTANTIATE_TEST_SUITE_P(
    Ways,
    SavingInTheBackground,
    ::testing::Values(
        Way{"Alone", 1, {}},
        Way{"SharedMemory", 2, {}},
        Way{"Messages", 2, {"comm.shared_memory=false"}, false},
        Way{"Stage0", 2, {"comm.zero_stage=0", "comm.shared_memory=false"}, false},
        Way{"Stage0Shared", 2, {"comm.zero_stage=0"}},
        Way{"Stage2", 4, {"comm.zero_stage=2"}},
        Way{"Stage3", 2, {"comm.zero_stage=3"}},
        Way{"Average", 2, {"train.ema_decay=0.9"}},
        Way{"ErrorFeedback",
            2,
            {"comm.wire_dtype=BF16", "comm.error_feedback=true", "comm.shared_memory=false"},
            false},
        Way{"PowerSgd",
            2,
            {"comm.power_sgd_rank=2", "comm.zero_stage=0", "comm.shared_memory=false"},
            false}),
    [](const auto& info) { return info.param.name; });

// The checkpoint of step 30 may be under way when the rate of step 31 ends the run.
TEST(Saving, WhatIsBeingWrittenWhenARunEndsIsFinishedAndNamed) {
  TemporaryFolder folder;
  try {
    train_in(folder.path(),
             {testing::mlp_config(),
              2,
              whole(),
              {"checkpoint.every=30",
               "optimizer.clip_norm=0",
               "schedule.kind=STEP",
               "schedule.milestones=30",
               "schedule.gamma=1e36",
               "schedule.warmup_steps=0"}});
    ADD_FAILURE();
  } catch (const collectives::AgreedError& error) {
    EXPECT_EQ(error.code(), ExitCode::kNumeric) << error.what();
    EXPECT_NE(std::string(error.what()).find("the checkpoint of step 30 is good"),
              std::string::npos)
        << error.what();
  }
  const std::vector<checkpoint::CheckpointEntry> saved =
      checkpoint::list_checkpoints(folder.path() / "checkpoints");
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(checkpoint::verify(saved[0].path), std::vector<std::string>());
}

TEST(Saving, CopiesOnTheHostsAreGoneOnFrom) {
  TemporaryFolder folder;
  const std::vector<std::string> overrides = {
      "checkpoint.every=15",
      "checkpoint.at_end=false",
      "checkpoint.local.every=5",
      "checkpoint.local.folder=" + (folder.path() / "local").string()};
  const TrainResult expected = train_in(folder.path() / "whole", {testing::mlp_config(), 1});
  TrainOptions cut = {.max_steps = 28};
  for (const auto& [before, after] : {std::pair(1, 1), std::pair(2, 2), std::pair(2, 4)}) {
    const fs::path run = folder.path() / std::to_string(10 * before + after);
    train_in(run, {testing::mlp_config(), before, cut, overrides});
    EXPECT_EQ(checkpoint::list_checkpoints(run / "checkpoints").back().step, 15);
    // What is not in the run folder any more can come from the hosts alone.
    fs::remove_all(run / "checkpoints");
    const TrainResult result =
        train_in(run, {testing::mlp_config(), after, testing::resumed(), overrides});
    EXPECT_EQ(result.weights_hash, expected.weights_hash) << before << " then " << after;
  }
}

}  // namespace
}  // namespace lockstep::train
