// Catches: statistics or their gradients that see only this lane's or this rank's batch, a lane
// that goes on before the others have come as far, a gather that mixes up lanes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <fstream>

#include "tests/reference/runs.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep {
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
    losses.push_back(nlohmann::json::parse(line)["loss"]);
  return losses;
}

TEST(SyncBatchNorm, LanesTogetherNormaliseLikeOneBatch) {
  const testing::TemporaryFolder folder;
  testing::train_in(folder.path() / "lanes", {.config = kConfig, .overrides = {}});
  testing::train_in(
      folder.path() / "whole",
      {.config = kConfig, .overrides = {"train.lanes=1", "model.resnet.sync_batch_norm=false"}});
  testing::train_in(folder.path() / "apart",
                    {.config = kConfig, .overrides = {"model.resnet.sync_batch_norm=false"}});
  const auto lanes = losses(folder.path() / "lanes"), whole = losses(folder.path() / "whole"),
             apart = losses(folder.path() / "apart");
  ASSERT_EQ(lanes.size(), 6u);
  for (size_t i = 0; i < lanes.size(); ++i)
    EXPECT_NEAR(lanes[i], whole[i], 2e-3 * static_cast<double>(i + 1)) << "step " << i;
  // Without it two images a lane normalise each other: another loss from the first step on.
  EXPECT_GT(std::abs(apart[0] - whole[0]), 1e-2);
}

TEST(SyncBatchNorm, HasTheSameBitsOnAnyNumberOfRanks) {
  const testing::TemporaryFolder folder;
  const auto hash = [&](int ranks) {
    return testing::train_in(folder.path() / std::to_string(ranks),
                             {.config = kConfig, .ranks = ranks})
        .weights_hash;
  };
  const uint64_t alone = hash(1);
  for (int ranks : {2, 4, 8}) EXPECT_EQ(hash(ranks), alone) << ranks;
}

}  // namespace
}  // namespace lockstep
