// Catches: statistics or their gradients that see only this lane's or this rank's batch, running
// statistics of another estimate, a lane that goes on before the others have come as far, a gather
// that mixes up lanes.
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "runtime/base/json.h"
#include "runtime/checkpoint/format/reader.h"
#include "tests/reference/runs.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep::train {
namespace {

const char* const kConfig = R"(
    model { resnet { depth: 20 sync_batch_norm: true } }
    data { synthetic { samples: 64 height: 8 width: 8 classes: 4 } shuffle: false }
    train { global_batch: 16 lanes: 8 steps: 6 log_every: 100 }
    optimizer { sgd { momentum: 0.9 } }
    schedule { lr: 0.05 }
    comm { bucket_mib: 0.1 }
    checkpoint { at_end: false })";

std::vector<double> losses(const std::filesystem::path& folder) {
  std::vector<double> losses;
  std::ifstream lines(folder / "metrics.jsonl");
  for (std::string line; std::getline(lines, line);)
    losses.push_back(Json::parse(line)["loss"].get<double>());
  return losses;
}

uint64_t train(const std::filesystem::path& folder,
               std::vector<std::string> overrides = {},
               int ranks = 1) {
  testing::Training training;
  training.config = kConfig;
  training.ranks = ranks;
  training.overrides = std::move(overrides);
  return testing::train_in(folder, training).weights_hash;
}

TEST(SyncBatchNorm, LanesTogetherNormaliseLikeOneBatch) {
  const testing::TemporaryFolder folder;
  train(folder.path() / "lanes");
  train(folder.path() / "whole", {"train.lanes=1", "model.resnet.sync_batch_norm=false"});
  train(folder.path() / "apart", {"model.resnet.sync_batch_norm=false"});
  const auto lanes = losses(folder.path() / "lanes"), whole = losses(folder.path() / "whole"),
             apart = losses(folder.path() / "apart");
  ASSERT_EQ(lanes.size(), 6u);
  for (size_t i = 0; i < lanes.size(); ++i)
    EXPECT_NEAR(lanes[i], whole[i], 2e-3 * static_cast<double>(i + 1)) << "step " << i;
  // Without it two images a lane normalise each other: another loss from the first step on.
  EXPECT_GT(std::abs(apart[0] - whole[0]), 1e-2);
}

// After one step, which all began with the same weights. Of the last stage's norms a lane has 8
// rows, so an estimate that took them for the whole batch would be 13% off, of which the running
// variance would show a tenth.
TEST(SyncBatchNorm, RunningStatisticsAreThoseOfOneBatch) {
  const testing::TemporaryFolder folder;
  const auto statistics = [&](const std::string& name, std::vector<std::string> changes) {
    changes.insert(changes.end(), {"train.steps=1", "checkpoint.at_end=true"});
    train(folder.path() / name, changes);
    const std::filesystem::path saved = folder.path() / name / "checkpoints/step-00000001";
    const checkpoint::CheckpointState state = checkpoint::read_state(saved);
    std::vector<float> weights(static_cast<size_t>(state.flat_elements));
    checkpoint::read_model(saved, state, state.layout, weights.data());
    std::map<std::string, std::vector<float>> found;
    for (const checkpoint::NamedSlice& slice : state.layout) {
      if (slice.name.find("running_") == std::string::npos) continue;
      const auto begin = weights.begin() + slice.offset;
      found[slice.name] = {begin, begin + slice.shape.elements()};
    }
    return found;
  };
  const auto lanes = statistics("lanes", {}),
             whole = statistics("whole", {"train.lanes=1", "model.resnet.sync_batch_norm=false"}),
             apart = statistics("apart", {"model.resnet.sync_batch_norm=false"});
  ASSERT_EQ(lanes.size(), 2u * 21);  // 19 convolutions and 2 projections
  double furthest = 0;
  for (const auto& [name, expected] : whole) {
    for (size_t c = 0; c < expected.size(); ++c) {
      EXPECT_NEAR(lanes.at(name)[c], expected[c], 1e-5 * (1 + std::abs(expected[c]))) << name;
      furthest = std::max<double>(furthest, std::abs(apart.at(name)[c] - expected[c]));
    }
  }
  EXPECT_GT(furthest, 1e-3);  // lanes apart show something else
}

TEST(SyncBatchNorm, HasTheSameBitsOnAnyNumberOfRanks) {
  const testing::TemporaryFolder folder;
  const auto hash = [&](int ranks) {
    return train(folder.path() / std::to_string(ranks), {}, ranks);
  };
  const uint64_t alone = hash(1);
  for (int ranks : {2, 4, 8}) EXPECT_EQ(hash(ranks), alone) << ranks;
}

}  // namespace
}  // namespace lockstep::train
