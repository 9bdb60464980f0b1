// Catches: LARS and LAMB that are not their papers', rates that depend on how ranks, nodes and
// buckets cut the tensors, biases and running statistics that are adapted, a resumed run with other
// bits, and a device that has no room for all rates.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "runtime/train/step/optimizer.h"
#include "tests/reference/kernel_test.h"
#include "tests/reference/optimizers.h"
#include "tests/reference/prepared.h"
#include "tests/reference/runs.h"

namespace lockstep::train {
namespace {

using test::kEps;

constexpr int kLanes = 4;
constexpr int64_t kSteps = 8;
constexpr double kScale = 0.5;

OptimizerConfig lars(float momentum) {
  OptimizerConfig config;
  config.kind = LarsConfig{
      .momentum = momentum, .weight_decay = 0.01f, .trust_coefficient = 0.02f, .epsilon = 1e-6f};
  return config;
}

OptimizerConfig lamb() {
  OptimizerConfig config;
  config.kind = LambConfig{.beta2 = 0.99f, .weight_decay = 0.1f};
  return config;
}

plan::ParameterSlot slot(const char* name, int64_t offset, int64_t elements, bool decay) {
  return {{.decay = decay}, name, {elements}, offset, elements};
}

// Tensors longer than a slice and shorter, one of zeros, a bias, and a running statistic.
plan::Plan make_tensors(const collectives::Topology& topology, int64_t bucket_elements = 512) {
  plan::Plan plan;
  plan.sharding.topology = topology;
  plan.sharding.lanes = kLanes;
  plan.layout.lanes = kLanes;
  plan.layout.slots.push_back(slot("second", 832, 300, true));  // not in the flat order
  plan.layout.slots.push_back(slot("weight", 0, 700, true));
  plan.layout.slots.push_back(slot("bias", 704, 100, false));
  plan.layout.slots.push_back(slot("zeros", 1152, 90, true));
  plan.layout.statistics_begin = collectives::padded_elements(1242, kLanes);
  plan.layout.elements = plan.layout.statistics_begin + collectives::padded_elements(70, kLanes);
  plan.layout.slots.push_back(slot("running_mean", plan.layout.statistics_begin, 70, false));
  plan.layout.slots.back().running_momentum = 0.25f;
  plan.layout.buckets =
      collectives::make_buckets({0, plan.layout.statistics_begin}, kLanes, bucket_elements);
  plan.layout.buckets.push_back({plan.layout.statistics_begin, plan.layout.elements});
  return plan;
}

double lr_of(int64_t step) { return 0.01 * static_cast<double>(step); }

std::vector<float> initial(const plan::Plan& plan) {
  std::vector<float> parameters(static_cast<size_t>(plan.layout.elements));
  for (const plan::ParameterSlot& slot : plan.layout.slots) {
    if (slot.name == "zeros") continue;
    std::span<float> values(&parameters[static_cast<size_t>(slot.offset)],
                            static_cast<size_t>(slot.elements));
    test::fill_uniform(values, -1, 1, static_cast<uint64_t>(slot.offset) + 1);
  }
  return parameters;
}

std::vector<float> gradients_of(const plan::Plan& plan, int64_t step) {
  std::vector<float> gradients(static_cast<size_t>(plan.layout.elements));
  for (const plan::ParameterSlot& slot : plan.layout.slots) {
    std::span<float> values(&gradients[static_cast<size_t>(slot.offset)],
                            static_cast<size_t>(slot.elements));
    test::fill_uniform(values, -1, 1, static_cast<uint64_t>(1000 * step + slot.offset));
  }
  return gradients;
}

// kSteps steps, every rank with its parts; the parameters of all.
std::vector<float> train(const OptimizerConfig& config,
                         const collectives::Topology& topology,
                         int64_t bucket_elements = 512) {
  const plan::Plan plan = make_tensors(topology, bucket_elements);
  std::vector<float> result(static_cast<size_t>(plan.layout.elements));
  std::mutex mutex;
  testing::run_ranks(topology.ranks(), [&](collectives::Communicator& communicator) {
    const auto backend = cpu::make_backend();
    const auto owned = collectives::owned_ranges(
        plan.layout.buckets, topology.part_of(communicator.rank()), topology.ranks());
    std::vector<float> parameters = initial(plan), moments(2 * parameters.size()),
                       gradients(parameters.size());
    TensorNorms norms(plan, adapted_tensors(config, plan.layout), communicator, *backend);
    Optimizer optimizer(config,
                        plan.layout,
                        owned,
                        *backend,
                        {.weights = {reinterpret_cast<std::byte*>(parameters.data())},
                         .gradients = {gradients.data()},
                         .moments = moments.data(),
                         .norms = &norms});
    for (int64_t step = 1; step <= kSteps; ++step) {
      std::ranges::copy(gradients_of(plan, step), gradients.begin());
      optimizer.prepare(lr_of(step), kScale, step);
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

std::vector<double> part(const std::vector<float>& flat, const plan::ParameterSlot& slot) {
  return {flat.begin() + slot.offset, flat.begin() + slot.offset + slot.elements};
}

// The papers' formulas, tensor by tensor.
std::vector<double> expected(const OptimizerConfig& config, const plan::ParameterSlot& slot) {
  const plan::Plan plan = make_tensors(collectives::Topology::flat(1));
  std::vector<double> p = part(initial(plan), slot), m(p.size()), v(p.size());
  for (int64_t step = 1; step <= kSteps; ++step) {
    std::vector<double> gradient = part(gradients_of(plan, step), slot);
    const bool adapted = slot.decay || config.decay_bias_and_norm;
    if (slot.running_momentum > 0) {
      for (size_t i = 0; i < p.size(); ++i) p[i] = 0.75 * p[i] + 0.25 / kLanes * gradient[i];
      continue;
    }
    for (double& g : gradient) g *= kScale;
    if (const auto* c = std::get_if<LarsConfig>(&config.kind)) {
      test::LarsReference{c->momentum, c->weight_decay, c->trust_coefficient, c->epsilon}.step(
          lr_of(step), adapted, gradient, p, m);
    } else {
      const auto& b = std::get<LambConfig>(config.kind);
      test::LambReference{b.beta1, b.beta2, b.epsilon, b.weight_decay}.step(
          step, lr_of(step), adapted, gradient, p, m, v);
    }
  }
  return p;
}

std::vector<OptimizerConfig> optimizers() {
  std::vector<OptimizerConfig> all = {lars(0.9f), lars(0), lamb()};
  for (size_t i : {0, 2}) {
    all.push_back(all[i]);
    all.back().decay_bias_and_norm = true;
  }
  return all;
}

TEST(LayerWise, FollowsThePapers) {
  const plan::Plan plan = make_tensors(collectives::Topology::flat(1));
  for (const OptimizerConfig& config : optimizers()) {
    const std::vector<float> trained = train(config, collectives::Topology::flat(1));
    for (const plan::ParameterSlot& slot : plan.layout.slots) {
      const std::vector<float> mine(trained.begin() + slot.offset,
                                    trained.begin() + slot.offset + slot.elements);
      // Each step rounds p (below 2) twice, and its update, at most lr = 0.08 times a direction of
      // about 1, has a relative error of some tens of eps (see optimizers_test.cc); LARS' moment
      // carries an error on for 1 / (1 - 0.9) steps.
      test::expect_close(mine,
                         expected(config, slot),
                         kSteps * (2 + 0.08 * 40) * kEps,
                         optimizer_name(config) + ", " + slot.name);
    }
  }
}

TEST(LayerWise, SameBitsHoweverRanksNodesAndBucketsCutTheTensors) {
  for (const OptimizerConfig& config : optimizers()) {
    const std::vector<float> alone = train(config, collectives::Topology::flat(1));
    for (const collectives::Topology& topology : {collectives::Topology::flat(2),
                                                  collectives::Topology::flat(4),
                                                  collectives::Topology{2, 2},
                                                  collectives::Topology{4, 1}})
      for (const int64_t bucket_elements : {256, 512, 4096})
        EXPECT_EQ(train(config, topology, bucket_elements), alone)
            << optimizer_name(config) << " on " << topology.nodes << " x " << topology.per_node
            << " in buckets of " << bucket_elements;
  }
}

// A tensor's step does not depend on the size of its gradient under LARS without decay and epsilon.
TEST(LayerWise, LarsStepsByTheSizeOfTheWeights) {
  OptimizerConfig config = lars(0);
  std::get<LarsConfig>(config.kind) = {.momentum = 0, .trust_coefficient = 0.5f, .epsilon = 0};
  const plan::Plan plan = make_tensors(collectives::Topology::flat(1));
  const auto backend = cpu::make_backend();
  for (float size : {1.0f, 64.0f}) {
    std::vector<float> parameters(static_cast<size_t>(plan.layout.elements), 2.0f);
    std::vector<float> gradients(parameters.size(), size);
    const auto communicator = collectives::make_self_communicator();
    TensorNorms norms(plan, adapted_tensors(config, plan.layout), *communicator, *backend);
    Optimizer optimizer(config,
                        plan.layout,
                        {{0, plan.layout.statistics_begin}},
                        *backend,
                        {.weights = {reinterpret_cast<std::byte*>(parameters.data())},
                         .gradients = {gradients.data()},
                         .norms = &norms});
    optimizer.prepare(0.25, 0.125, 1);
    optimizer.adapt();
    optimizer.update();
    EXPECT_NEAR(parameters[0], 2 - 0.25 * 0.5 * 2, 4 * kEps);
    EXPECT_EQ(parameters[710], 2 - 0.25f * 0.125f * size);  // the bias
  }
}

class LayerWiseTraining : public ::testing::TestWithParam<std::string> {};

std::vector<std::string> changes(const std::string& optimizer) {
  std::vector<std::string> all = {"optimizer." + optimizer + ".weight_decay=0.01",
                                  "schedule.lr=0.1"};
  if (optimizer == "lars") all.push_back("optimizer.lars.trust_coefficient=0.1");
  return all;
}

TEST_P(LayerWiseTraining, SameBitsOnRanksAndNodes) {
  testing::TemporaryFolder folder;
  const TrainResult alone = testing::train_in(
      folder.path() / "1", {testing::mlp_config(), 1, testing::whole(), changes(GetParam())});
  for (const auto& [nodes, ranks] : {std::pair(1, 2), std::pair(1, 8), std::pair(2, 4)}) {
    const TrainResult many = testing::train_in(
        folder.path() / fmt::format("{}x{}", nodes, ranks),
        {testing::mlp_config(), ranks, testing::whole(), changes(GetParam()), nodes});
    EXPECT_EQ(many.weights_hash, alone.weights_hash) << ranks << " ranks on " << nodes;
    EXPECT_EQ(many.loss, alone.loss) << ranks << " ranks";
  }
  EXPECT_LT(*alone.loss, 1.2);  // from log(4)
}

TEST_P(LayerWiseTraining, SameBitsForAnyBuckets) {
  testing::TemporaryFolder folder;
  std::optional<uint64_t> hash;
  for (const std::string mib : {"0.002", "0.004", "0.01", "25"}) {
    std::vector<std::string> all = changes(GetParam());
    all.push_back("comm.bucket_mib=" + mib);
    all.push_back("train.steps=20");
    const TrainResult run = testing::train_in(folder.path() / mib,
                                              {testing::mlp_config(), 4, testing::whole(), all, 2});
    EXPECT_EQ(run.weights_hash, hash.value_or(run.weights_hash)) << mib;
    hash = run.weights_hash;
  }
}

TEST_P(LayerWiseTraining, ResumesToTheSameBits) {
  testing::TemporaryFolder folder;
  const auto all = changes(GetParam());
  const TrainResult whole =
      testing::train_in(folder.path() / "whole", {testing::mlp_config(), 1, testing::whole(), all});
  testing::train_in(folder.path() / "cut", {testing::mlp_config(), 4, testing::until(17), all, 2});
  const TrainResult resumed =
      testing::train_in(folder.path() / "cut", {testing::mlp_config(), 2, testing::resumed(), all});
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
}

TEST_P(LayerWiseTraining, IsRefusedWhereADeviceHasTooFewGroups) {
  exec::OpSet small = cpu::make_backend()->ops();
  small.device = "small";
  const RunConfig config = config::parse_config(testing::mlp_config(), "test", changes(GetParam()));
  small.max_update_groups = 4;  // that of biases and those of three weight matrices
  testing::prepare(config, collectives::Topology::flat(1), run::RunPurpose::kTrain, small);
  small.max_update_groups = 3;
  try {
    testing::prepare(config, collectives::Topology::flat(1), run::RunPurpose::kTrain, small);
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()),
              "optimizer." + GetParam() +
                  ": the model has 3 tensors with a learning rate of their own; allowed on "
                  "small: up to 2, or --device cpu");
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers,
                         LayerWiseTraining,
                         ::testing::Values("lars", "lamb"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep::train
