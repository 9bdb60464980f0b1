#pragma once
// What runs with moments must show, of any optimizer and type of moments. `changes`: to the config
// of the small GPT.

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/checkpoint/format/reader.h"
#include "tests/reference/prepared.h"
#include "tests/reference/runs.h"

namespace lockstep::testing {

using Changes = std::vector<std::string>;

inline train::TrainResult train_gpt(const std::filesystem::path& folder,
                                    const Changes& changes,
                                    int ranks = 1) {
  return train_in(folder, {gpt_config(), ranks, whole(), changes});
}

inline plan::Plan plan_of(const Changes& changes) {
  return prepare(config::parse_config(gpt_config(), "test", changes),
                 collectives::Topology::flat(1),
                 run::RunPurpose::kTrain,
                 cpu::make_backend()->ops())
      .plan;
}

// On 2, 3 and 4 ranks, and in all ZeRO stages.
inline void expect_same_bits_on_ranks(const Changes& changes) {
  TemporaryFolder folder;
  const train::TrainResult alone = train_gpt(folder.path() / "alone", changes);
  for (const auto& [ranks, stage] : {std::pair(2, "0"), {3, "1"}, {4, "2"}, {2, "3"}}) {
    Training training = {gpt_config(), ranks, whole(), changes};
    training.overrides.push_back(std::string("comm.zero_stage=") + stage);
    training.shares_memory = std::string(stage) != "3";
    const train::TrainResult many = train_in(folder.path() / stage, training);
    EXPECT_EQ(many.weights_hash, alone.weights_hash) << ranks << " ranks in stage " << stage;
  }
}

// After a resume on another number of ranks. Returns the moments of the last checkpoint.
inline Changes expect_same_bits_resumed(const Changes& changes, int ranks) {
  TemporaryFolder folder;
  const train::TrainResult uncut = train_gpt(folder.path() / "uncut", changes);
  const auto cut = folder.path() / "cut";
  train_in(cut, {gpt_config(), 4, until(17), changes, 2});
  const train::TrainResult after = train_in(cut, {gpt_config(), ranks, resumed(), changes});
  EXPECT_EQ(after.weights_hash, uncut.weights_hash);
  return checkpoint::read_state(cut / "checkpoints" / "step-00000030").moments;
}

// The type of all moments in a checkpoint's files.
inline void expect_stored_as(const std::string& dtype, const Changes& changes) {
  TemporaryFolder folder;
  train_in(folder.path() / "run", {gpt_config(), 2, until(15), changes});
  const auto checkpoint = folder.path() / "run" / "checkpoints" / "step-00000015";
  const checkpoint::SafetensorsFile file(checkpoint / "optimizer-00000-of-00002.safetensors");
  ASSERT_FALSE(file.header().entries.empty());
  for (const checkpoint::SafetensorsEntry& entry : file.header().entries)
    EXPECT_EQ(entry.dtype, dtype);
  EXPECT_TRUE(checkpoint::verify(checkpoint).empty());
}

// The hash after a run that begins with `first` and is resumed with `second`, which is the same on
// 1 and 2 ranks.
inline uint64_t expect_converted(const Changes& first, const Changes& second) {
  TemporaryFolder folder;
  std::vector<uint64_t> hashes;
  for (const int ranks : {1, 2}) {
    const auto run = folder.path() / std::to_string(ranks);
    train_in(run, {gpt_config(), 1, until(15), first});
    hashes.push_back(train_in(run, {gpt_config(), ranks, resumed(), second}).weights_hash);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  return hashes[0];
}

// A flipped bit of a moment's memory, behind as many moments of floats, ends the run with an error
// that names it.
inline void expect_guarded(const Changes& changes,
                           const std::string& moment,
                           size_t floats_before = 0) {
  TemporaryFolder folder;
  Training training = {gpt_config(), 1, whole(), changes};
  training.overrides.emplace_back("train.lanes=1");
  training.meddle = [&](const RankUnderTest& rank) {
    rank.backend.on_lane = [&rank, floats_before](const graph::LaneContext& lane) {
      if (lane.step != 7) return;
      const auto elements = static_cast<size_t>(rank.prepared.plan.layout.elements);
      rank.backend.row(plan::name_of(plan::RowKind::kMoments))[elements * 4 * floats_before + 1] ^=
          std::byte{2};
    };
  };
  try {
    train_in(folder.path() / "run", training);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("moment " + moment), std::string::npos)
        << error.what();
  }
}

// Other weights than with `floats`, and about the same loss.
inline void expect_close_to(const Changes& floats, const Changes& changes, double share) {
  TemporaryFolder folder;
  const train::TrainResult wanted = train_gpt(folder.path() / "floats", floats);
  const train::TrainResult found = train_gpt(folder.path() / "found", changes);
  EXPECT_NE(found.weights_hash, wanted.weights_hash);
  EXPECT_NEAR(*found.loss, *wanted.loss, share * *wanted.loss);
}

}  // namespace lockstep::testing
