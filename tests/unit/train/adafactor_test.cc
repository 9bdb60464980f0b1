// Catches: a step that is not torch.optim.Adafactor's, on matrices, fused ones, convolutions and
// vectors, with and without clipping; bits that depend on ranks, nodes, buckets, ZeRO stages or a
// resume; averages that are not planned, not under PyTorch's names in checkpoints, or not read from
// them; an unguarded gradient; and settings that are not refused.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "runtime/base/error.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/plan/moment_layout.h"
#include "runtime/train/step/optimizer.h"
#include "tests/reference/kernel_test.h"
#include "tests/reference/prepared.h"
#include "tests/reference/runs.h"

namespace lockstep::train {
namespace {

constexpr int kLanes = 4;
constexpr int64_t kSteps = 20;
constexpr double kScale = 0.5, kLr = 0.3;

OptimizerConfig adafactor() {
  OptimizerConfig config;
  config.kind = AdafactorConfig{.weight_decay = 0.1f};
  return config;
}

// Made by torch 2.15.0: torch.optim.Adafactor in double precision, lr 0.3, weight_decay 0.1 (0
// without decay), eps (1.1920929e-7, 1e-3), 20 steps. Its parameters are (O, I, H, W) where ours
// are (O, H, W, I), and each of the parts is a parameter of its own.
struct Golden {
  const char* name;
  Shape shape;
  bool decay;
  bool growing;  // gradients grow, so that steps are clipped: 19 of 20 of "wide", none of "volume"
  std::vector<int64_t> row_parts;
  double elements[3];  // first, middle and last
  double squares;      // of all elements
};
const Golden kGolden[] = {{"wide",
                           {10, 70},
                           true,
                           true,
                           {},
                           {0.0551766213558, 0.0534021192618, 0.0109771285686},
                           1.5883157329},
                          {"bias",
                           {100},
                           false,
                           false,
                           {},
                           {0.172695824186, -0.157932500137, 0.171442800333},
                           1.6132040619},
                          {"qkv",
                           {40, 12},
                           true,
                           false,
                           {20, 10, 10},
                           {0.0688170156823, 0.0604231627688, -0.094728629102},
                           2.14326052691},
                          {"qkv.bias",
                           {40},
                           false,
                           true,
                           {20, 10, 10},
                           {-0.0928113504597, -0.0823320575549, -0.0535096321967},
                           0.355929146678},
                          {"conv",
                           {6, 3, 3, 2},
                           true,
                           true,
                           {},
                           {-0.0674836125777, -0.0650981484955, -0.0674168276969},
                           0.245914392897},
                          {"volume",
                           {3, 5, 7},
                           true,
                           false,
                           {},
                           {-0.0773525256884, -0.0723697748714, 0.040860400112},
                           0.469296819805},
                          {"row",
                           {1, 9},
                           true,
                           true,
                           {},
                           {0.0451230929997, -0.0204782524426, -0.0149827369676},
                           0.0206149424363}};

plan::Plan make_tensors(const collectives::Topology& topology, int64_t bucket_elements) {
  plan::Plan plan;
  plan.sharding.topology = topology;
  plan.sharding.lanes = kLanes;
  plan.layout.lanes = kLanes;
  plan.layout.by_parts = true;
  int64_t offset = 0;
  for (const Golden& golden : kGolden) {
    plan::ParameterSlot slot;
    slot.name = golden.name;
    slot.shape = golden.shape;
    slot.elements = golden.shape.elements();
    slot.decay = golden.decay;
    slot.row_parts = golden.row_parts;
    if (slot.shape.rank() == 4) slot.channels_last = slot.shape;
    slot.offset = offset;
    offset += (slot.elements + 63) / 64 * 64;
    plan.layout.slots.push_back(slot);
  }
  plan.layout.elements = plan.layout.statistics_begin =
      collectives::padded_elements(offset, kLanes);
  plan.layout.buckets =
      collectives::make_buckets({0, plan.layout.elements}, kLanes, bucket_elements);
  plan.traffic.adafactor = plan::make_adafactor_layout(plan.layout, plan.sharding, false);
  return plan;
}

// factor * sin(0.7 i + 1.3 step + phase) for element i of a tensor.
void fill(const plan::Plan& plan,
          size_t tensor,
          double phase,
          int64_t step,
          float factor,
          std::vector<float>& flat) {
  const plan::ParameterSlot& slot = plan.layout.slots[tensor];
  for (int64_t i = 0; i < slot.elements; ++i)
    flat[static_cast<size_t>(slot.offset + i)] =
        static_cast<float>(
            std::sin(0.7 * static_cast<double>(i) + 1.3 * static_cast<double>(step) + phase)) *
        factor;
}

std::vector<float> initial(const plan::Plan& plan) {
  std::vector<float> values(static_cast<size_t>(plan.layout.elements));
  for (size_t k = 0; k < std::size(kGolden); ++k)
    fill(plan, k, static_cast<double>(k) + 0.5, 0, 0.2f, values);
  return values;
}

std::vector<float> gradients_of(const plan::Plan& plan, int64_t step) {
  std::vector<float> values(static_cast<size_t>(plan.layout.elements));
  for (size_t k = 0; k < std::size(kGolden); ++k) {
    const auto t = static_cast<float>(step);
    fill(plan, k, static_cast<double>(k), step, kGolden[k].growing ? t : 1 / t, values);
  }
  return values;
}

// kSteps steps, every rank with its parts; the parameters of all.
std::vector<float> train(const collectives::Topology& topology, int64_t bucket_elements = 512) {
  const plan::Plan plan = make_tensors(topology, bucket_elements);
  const OptimizerConfig config = adafactor();
  std::vector<float> result(static_cast<size_t>(plan.layout.elements));
  std::mutex mutex;
  testing::run_ranks(topology.ranks(), [&](collectives::Communicator& communicator) {
    const auto backend = cpu::make_backend();
    const auto owned = collectives::owned_ranges(
        plan.layout.buckets, topology.part_of(communicator.rank()), topology.ranks());
    std::vector<float> parameters = initial(plan), moments(parameters.size()),
                       gradients(parameters.size());
    const auto take = [&](size_t bytes) {
      return backend->allocate(bytes, "test", exec::Backend::Place::kHost);
    };
    FactoredAverages factored(*plan.traffic.adafactor,
                              communicator,
                              *backend,
                              take(plan.traffic.adafactor->device_bytes()),
                              take(plan.traffic.adafactor->host_bytes()));
    TensorNorms norms(plan, adapted_tensors(config, plan.layout), communicator, *backend);
    Optimizer optimizer(config,
                        plan.layout,
                        owned,
                        *backend,
                        {.weights = {reinterpret_cast<std::byte*>(parameters.data())},
                         .gradients = {gradients.data()},
                         .moments = moments.data(),
                         .norms = &norms,
                         .factored = &factored});
    for (int64_t step = 1; step <= kSteps; ++step) {
      const std::vector<float> all = gradients_of(plan, step);
      double squares = 0;
      for (const float g : all) squares += static_cast<double>(g) * g;
      std::ranges::fill(gradients, 0.0f);  // a rank knows nothing of what others own
      for (const collectives::Range& range : owned)
        std::copy(
            all.begin() + range.begin, all.begin() + range.end, gradients.begin() + range.begin);
      optimizer.prepare(kLr, kScale, step, std::sqrt(squares) * kScale);
      optimizer.adapt();
      optimizer.update();
    }
    const std::lock_guard lock(mutex);
    for (const collectives::Range& range : owned)
      std::copy(parameters.begin() + range.begin,
                parameters.begin() + range.end,
                result.begin() + range.begin);
  });
  return result;
}

// Each step rounds a weight (below 0.4) and its direction a few times; 20 steps move it by less
// than 0.4.
TEST(Adafactor, FollowsPyTorch) {
  const plan::Plan plan = make_tensors(collectives::Topology::flat(1), 512);
  const std::vector<float> trained = train(collectives::Topology::flat(1));
  for (size_t k = 0; k < std::size(kGolden); ++k) {
    const plan::ParameterSlot& slot = plan.layout.slots[k];
    const auto at = [&](int64_t i) {
      return static_cast<double>(trained[static_cast<size_t>(slot.offset + i)]);
    };
    const double expected = kSteps * 2 * test::kEps;
    EXPECT_NEAR(at(0), kGolden[k].elements[0], expected) << slot.name;
    EXPECT_NEAR(at(slot.elements / 2), kGolden[k].elements[1], expected) << slot.name;
    EXPECT_NEAR(at(slot.elements - 1), kGolden[k].elements[2], expected) << slot.name;
    double squares = 0;
    for (int64_t i = 0; i < slot.elements; ++i) squares += at(i) * at(i);
    EXPECT_NEAR(squares, kGolden[k].squares, kGolden[k].squares * kSteps * 2 * test::kEps)
        << slot.name;
  }
}

TEST(Adafactor, SameBitsHoweverRanksNodesAndBucketsCutTheMatrices) {
  const std::vector<float> alone = train(collectives::Topology::flat(1));
  for (const auto& [topology, bucket_elements] : {std::pair(collectives::Topology::flat(2), 256),
                                                  {collectives::Topology::flat(4), 512},
                                                  {collectives::Topology{2, 2}, 4096}})
    EXPECT_EQ(train(topology, bucket_elements), alone)
        << topology.nodes << " x " << topology.per_node << " in buckets of " << bucket_elements;
}

std::vector<std::string> changes(std::vector<std::string> more = {}) {
  more.insert(more.end(),
              {"optimizer.adafactor.weight_decay=0.01",
               "schedule.lr=0.02",
               "train.ema_decay=0.9",
               "optimizer.clip_norm=1"});
  return more;
}

TEST(AdafactorTraining, SameBitsOnRanksNodesAndInStages) {
  testing::TemporaryFolder folder;
  const TrainResult alone = testing::train_in(
      folder.path() / "1", {testing::gpt_config(), 1, testing::whole(), changes()});
  for (const auto& [ranks, stage, shares] : {std::tuple(2, "0", true),
                                             {4, "0", false},
                                             {3, "1", true},
                                             {4, "2", false},
                                             {2, "3", false}}) {
    testing::Training training = {testing::gpt_config(),
                                  ranks,
                                  testing::whole(),
                                  changes({std::string("comm.zero_stage=") + stage})};
    training.shares_memory = shares;
    const TrainResult many =
        testing::train_in(folder.path() / fmt::format("{} {}", ranks, stage), training);
    EXPECT_EQ(many.weights_hash, alone.weights_hash) << ranks << " ranks in stage " << stage;
  }
}

// Master weights, and gradients that PowerSGD approximates.
TEST(AdafactorTraining, SameBitsWithOtherNumbers) {
  testing::TemporaryFolder folder;
  for (const std::vector<std::string>& more : {std::vector<std::string>{"execution.precision=BF16"},
                                               {"comm.zero_stage=0", "comm.power_sgd_rank=2"}}) {
    const TrainResult alone =
        testing::train_in(folder.path() / (more[0] + "1"),
                          {testing::gpt_config(), 1, testing::until(6), changes(more)});
    const TrainResult two =
        testing::train_in(folder.path() / (more[0] + "2"),
                          {testing::gpt_config(), 2, testing::until(6), changes(more)});
    EXPECT_EQ(two.weights_hash, alone.weights_hash) << more[0];
  }
}

run::PreparedRun prepared(const std::vector<std::string>& overrides, int ranks) {
  return testing::prepare(config::parse_config(testing::gpt_config(), "test", overrides),
                          collectives::Topology::flat(ranks),
                          run::RunPurpose::kTrain,
                          cpu::make_backend()->ops());
}

TEST(AdafactorTraining, ResumesToTheSameBits) {
  testing::TemporaryFolder folder;
  const TrainResult whole = testing::train_in(
      folder.path() / "whole", {testing::gpt_config(), 1, testing::whole(), changes()});
  const auto cut = folder.path() / "cut";
  testing::train_in(
      cut, {testing::gpt_config(), 4, testing::until(17), changes({"comm.zero_stage=3"}), 2});
  const auto saved = cut / "checkpoints" / "step-00000017";
  EXPECT_EQ(checkpoint::verify(saved), std::vector<std::string>());
  const checkpoint::CheckpointState state = checkpoint::read_state(saved);
  EXPECT_EQ(
      state.moments,
      (std::vector<std::string>{"variance", checkpoint::kAverageArray, "row_var", "col_var"}));
  int64_t averages = 0, variances = 0;
  for (const checkpoint::FileRecord& file : state.files) {
    for (const checkpoint::TensorRecord& tensor : file.tensors) {
      if (tensor.name.starts_with("variance.")) variances += tensor.elements;
      if (tensor.name.starts_with("row_var.") || tensor.name.starts_with("col_var."))
        averages += tensor.elements;
    }
  }
  const plan::Plan plan = prepared(changes(), 1).plan;
  int64_t matrices = 0;  // with the padding behind them
  for (const collectives::Range& range : plan::ranges_without_last_moment(adafactor(), plan.layout))
    matrices += range.size();
  EXPECT_EQ(averages, plan.traffic.adafactor->averages);
  EXPECT_EQ(variances, state.flat_elements - matrices);
  EXPECT_GT(matrices, state.flat_elements / 2);
  const TrainResult resumed = testing::train_in(
      cut, {testing::gpt_config(), 2, testing::resumed(), changes({"comm.zero_stage=0"})});
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
}

std::string refusal(const std::vector<std::string>& overrides) {
  try {
    config::parse_config(testing::gpt_config(), "test", overrides);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(AdafactorTraining, IsRefusedByName) {
  EXPECT_EQ(refusal(changes()), "");
  for (const std::string type : {"BF16", "INT8"})
    EXPECT_NE(refusal(changes({"optimizer.moments=" + type}))
                  .find("optimizer.moments: value is " + type +
                        "; allowed: FP32 with optimizer.adafactor"),
              std::string::npos);
}

TEST(AdafactorTraining, PlansAveragesInPlaceOfMoments) {
  const std::vector<std::string> adafactor = {"optimizer.adafactor={}", "comm.zero_stage=1"};
  const plan::Plan alone = prepared(adafactor, 1).plan;
  int64_t averages = 0, matrices = 0;
  for (const plan::FactoredTensor& tensor : alone.traffic.adafactor->tensors) {
    averages += tensor.shape.rows + tensor.shape.columns;
    matrices += tensor.shape.elements();
  }
  EXPECT_EQ(alone.traffic.adafactor->averages, averages);
  EXPECT_LE(alone.memory.row_bytes(plan::RowKind::kMoments),
            static_cast<size_t>(alone.layout.elements - matrices) * 4);
  EXPECT_EQ(alone.memory.row_bytes(plan::RowKind::kFactoredSums),
            static_cast<size_t>(averages) * 20);
  EXPECT_EQ(alone.memory.row_bytes(plan::RowKind::kFactoredAverages),
            static_cast<size_t>(averages) * 4);
  const plan::Plan two = prepared(adafactor, 2).plan,
                   plain = prepared({"optimizer.sgd={}", "comm.zero_stage=1"}, 2).plan;
  EXPECT_EQ(two.traffic.wire_bytes - plain.traffic.wire_bytes, (averages + 1) / 2 * 20);
}

TEST(AdafactorGuard, SeesAFlippedBitOfTheVariance) {
  testing::TemporaryFolder folder;
  testing::Training training = {
      testing::gpt_config(), 1, testing::whole(), changes({"train.lanes=1"})};
  training.meddle = [](const testing::RankUnderTest& rank) {
    rank.backend.on_lane = [&rank](const graph::LaneContext& lane) {
      if (lane.step == 7)
        rank.backend.row(plan::name_of(plan::RowKind::kMoments))[1] ^= std::byte{2};
    };
  };
  try {
    testing::train_in(folder.path() / "run", training);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("moment variance"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::train
