// Catches: an average of other weights or with another decay, one that depends on ranks or on an
// interruption, evaluations of the weights themselves, and training that the average touches.
#include "runtime/train/step/weight_average.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "runtime/checkpoint/format/folder.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/train/state/initialize.h"
#include "tests/reference/prepared.h"
#include "tests/reference/runs.h"

namespace lockstep::train {
namespace {

using testing::TemporaryFolder;
using testing::train_in;

constexpr double kEps = std::numeric_limits<float>::epsilon();

std::string step_folder(int64_t step) { return fmt::format("checkpoints/step-{:08}", step); }

struct Saved {
  checkpoint::CheckpointState state;
  std::vector<float> weights, average;  // flat
};

Saved read(const std::filesystem::path& folder) {
  Saved saved{checkpoint::read_state(folder), {}, {}};
  const auto elements = static_cast<size_t>(saved.state.flat_elements);
  saved.weights.resize(elements);
  saved.average.resize(elements);
  checkpoint::read_model(folder, saved.state, saved.state.layout, saved.weights.data());
  checkpoint::read_optimizer(
      folder, saved.state, saved.state.layout, checkpoint::kAverageArray, {{0, saved.average}});
  return saved;
}

TEST(WeightAverage, FollowsTheFormulaFromTheFirstWeightsOn) {
  TemporaryFolder folder;
  const std::vector<std::string> changes = {
      "train.ema_decay=0.75", "train.steps=6", "checkpoint.every=1", "checkpoint.keep_last=9"};
  train_in(folder.path(), {testing::mlp_config(), 2, testing::whole(), changes});
  const run::PreparedRun prepared =
      testing::prepare(config::parse_config(testing::mlp_config(), "test", changes),
                       collectives::Topology::flat(2),
                       run::RunPurpose::kTrain,
                       cpu::make_backend()->ops());
  std::vector<float> first(static_cast<size_t>(prepared.plan.layout.elements));
  initialize_parameters(prepared.plan.layout, prepared.config.seed, first.data());
  std::vector<double> expected(first.begin(), first.end());
  for (int64_t step = 1; step <= 6; ++step) {
    const Saved saved = read(folder.path() / step_folder(step));
    double moved = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      expected[i] = 0.75 * expected[i] + 0.25 * saved.weights[i];
      // Weights are below 1, and each step rounds twice.
      ASSERT_NEAR(saved.average[i], expected[i], 2 * kEps * static_cast<double>(step))
          << "step " << step << ", element " << i;
      moved = std::max(moved, std::abs(expected[i] - saved.weights[i]));
    }
    EXPECT_GT(moved, 1e-4);  // it is not the weights
  }
}

// With text, which has an evaluation set.
struct Runs {
  TemporaryFolder folder;
  std::string config;
  std::vector<std::string> changes = {"eval.every=5", "checkpoint.keep_last=9"};

  explicit Runs(const char* decay) {
    std::ofstream text(folder.path() / "text");
    for (int i = 0; i < 3000; ++i) text.put(static_cast<char>('a' + (i * i + i / 7) % 23));
    config = fmt::format(R"(
      model {{ gpt {{ layers: 1 heads: 2 width: 16 context: 12 }} }}
      data {{ text {{ train: "{}" eval_fraction: 0.1 }} }}
      train {{ global_batch: 16 lanes: 8 steps: 20 log_every: 1000000 ema_decay: {} }}
      optimizer {{ adamw {{}} }}
      schedule {{ lr: 0.02 }}
      comm {{ bucket_mib: 0.004 }}
      checkpoint {{ every: 10 }})",
                         (folder.path() / "text").string(),
                         decay);
  }
  TrainResult run(const std::string& name,
                  int ranks,
                  const testing::TrainOptions& options = testing::whole(),
                  int nodes = 1) {
    return train_in(folder.path() / name, {config, ranks, options, changes, nodes});
  }
};

TEST(WeightAverage, EvaluationsUseItAndTrainingDoesNot) {
  Runs with("0.8"), without("0");
  const TrainResult averaged = with.run("run", 2), plain = without.run("run", 2);
  EXPECT_EQ(averaged.weights_hash, plain.weights_hash);
  EXPECT_EQ(averaged.loss, plain.loss);
  ASSERT_TRUE(averaged.evaluation && plain.evaluation);
  EXPECT_NE(averaged.evaluation->loss, plain.evaluation->loss);
  // An average without memory is the weights; one that hardly moves is the first weights.
  EXPECT_EQ(Runs("1e-30").run("run", 2).evaluation->loss, plain.evaluation->loss);
  Runs still("0.9999999"), untrained("0");
  untrained.changes.push_back("schedule.lr=1e-12");
  EXPECT_NEAR(still.run("run", 2).evaluation->loss, untrained.run("run", 1).evaluation->loss, 1e-4);
}

TEST(WeightAverage, SameBitsOnRanksAndNodesAndAfterAResume) {
  Runs runs("0.8");
  const TrainResult alone = runs.run("1", 1);
  const Saved expected = read(runs.folder.path() / "1" / step_folder(20));
  const auto check = [&](const std::string& name, const TrainResult& result) {
    EXPECT_EQ(result.weights_hash, alone.weights_hash) << name;
    EXPECT_EQ(result.evaluation->loss, alone.evaluation->loss) << name;
    EXPECT_EQ(read(runs.folder.path() / name / step_folder(20)).average, expected.average) << name;
  };
  check("4", runs.run("4", 4));
  check("2x2", runs.run("2x2", 4, testing::whole(), 2));
  runs.run("cut", 4, testing::until(13));
  check("cut", runs.run("cut", 2, testing::resumed()));
}

TEST(WeightAverage, MayComeAndGoOnResume) {
  Runs runs("0.8");
  runs.run("run", 1, testing::until(10));
  runs.changes.push_back("train.ema_decay=0");
  testing::TrainOptions next = testing::resumed();
  next.max_steps = 15;
  runs.run("run", 2, next);
  EXPECT_EQ(checkpoint::read_state(runs.folder.path() / "run" / step_folder(15)).moments.size(),
            2u);
  runs.changes.back() = "train.ema_decay=0.5";
  const TrainResult last = runs.run("run", 2, testing::resumed());
  const Saved saved = read(runs.folder.path() / "run" / step_folder(20));
  EXPECT_NE(saved.average, saved.weights);
  EXPECT_TRUE(std::isfinite(last.evaluation->loss));
}

}  // namespace
}  // namespace lockstep::train
