// Catches: memory that is shared where it must not be or left unshared where it may, a size of
// buckets that depends on the ranks, and a ZeRO stage that takes effect where nothing is sharded.
#include "runtime/run/defaults.h"
#include "runtime/run/zero_stage.h"

#include <gtest/gtest.h>

#include "models/registry.h"

namespace lockstep::run {
namespace {

constexpr collectives::Topology kNode = {.nodes = 1, .per_node = 4, .shares_memory = true};
constexpr collectives::Topology kTwoNodes = {.nodes = 2, .per_node = 2, .shares_memory = true};

exec::OpSet gpu() {
  exec::OpSet ops = {};
  ops.separate_memory = true;
  return ops;
}

CommConfig comm_of(int64_t zero_stage) {
  CommConfig comm;
  comm.zero_stage = static_cast<ZeroStage>(zero_stage);
  return comm;
}

RunConfig config_of(const CommConfig& comm) {
  RunConfig config;
  config.comm = comm;
  return config;
}

graph::Graph small_model() {
  MlpConfig mlp;
  mlp.hidden = {64};
  mlp.outputs = 8;
  return models::build_model(
      mlp, {.features = 32, .classes = 8}, 4, graph::GraphOptions(graph::Purpose::kTraining));
}

// A small vocabulary's logits are whole, however many tokens a lane has.
TEST(Decisions, HowManyRowsOfLogitsThereAreAtATime) {
  const exec::OpSet cpu = {};
  ExecutionConfig execution;
  EXPECT_EQ(loss_rows_of(execution, 50257, cpu), 1280);
  EXPECT_EQ(loss_rows_of(execution, 128256, cpu), 512);
  EXPECT_EQ(loss_rows_of(execution, 10'000'000, cpu), 64);
  EXPECT_GT(loss_rows_of(execution, 256, cpu), 200'000);
  EXPECT_EQ(loss_rows_of(execution, 50257, gpu()), 0);
  execution.loss_rows = 100;
  EXPECT_EQ(loss_rows_of(execution, 50257, cpu), 100);
  EXPECT_EQ(loss_rows_of(execution, 50257, gpu()), 100);
  execution.loss_rows = 0;
  execution.bf16x3 = true;
  EXPECT_EQ(loss_rows_of(execution, 50257, cpu), 0);
}

TEST(Decisions, WhoSharesMemoryWithinANode) {
  const exec::OpSet cpu = {};
  CommConfig comm;
  for (int stage : {0, 1, 2}) EXPECT_TRUE(wants_shared_memory(comm, stage, kNode, cpu));
  EXPECT_FALSE(wants_shared_memory(comm, 3, kNode, cpu));
  EXPECT_FALSE(wants_shared_memory(comm, 0, kTwoNodes, cpu));
  EXPECT_TRUE(wants_shared_memory(comm, 1, kTwoNodes, cpu));
  EXPECT_FALSE(wants_shared_memory(comm, 1, kNode, gpu()));
  EXPECT_FALSE(wants_shared_memory(comm, 1, collectives::Topology{.nodes = 4}, cpu));
  comm.power_sgd_rank = 2;
  EXPECT_FALSE(wants_shared_memory(comm, 0, kNode, cpu));
  comm.order = CommConfig::Order::kFast;
  EXPECT_FALSE(wants_shared_memory(comm, 1, kNode, cpu));
  comm = {};
  comm.shared_memory = false;
  EXPECT_FALSE(wants_shared_memory(comm, 1, kNode, cpu));
}

// Stage 0 sends two bytes a parameter back where stage 1 sends four; ranks then update everything,
// and those of a node send each other more.
TEST(Decisions, TheStageOfAutoDependsOnTheNetwork) {
  RunConfig config;
  config.execution.precision = Precision::kFp32;
  const collectives::Topology hosts = {.nodes = 2}, eight = {2, 8};
  const auto stage = [&](const collectives::Topology& placed, double measured) {
    return choose_zero_stage(config, placed, {}, measured).stage;
  };
  EXPECT_EQ(stage(hosts, 1), 1) << "as many bytes either way";
  config.comm.wire_dtype = CommConfig::WireType::kBf16;
  EXPECT_EQ(stage(hosts, 1), 0);
  EXPECT_EQ(stage(hosts, 100), 1);
  EXPECT_EQ(stage(eight, 1), 1);
  EXPECT_EQ(stage(kNode, 1), 1);
  EXPECT_EQ(stage(hosts, 0), 1) << "not measured";
  EXPECT_NE(choose_zero_stage(config, hosts, {}, 0).reason.find("comm.link_gbit"),
            std::string::npos);
  config.comm.link_gbit = 1;
  EXPECT_EQ(stage(hosts, 0), 0);
  EXPECT_EQ(stage(hosts, 100), 0) << "the config's rate counts";
  config.execution.precision = Precision::kBf16;
  EXPECT_EQ(stage(hosts, 1), 1) << "as many bytes either way";
  config.comm.power_sgd_rank = 4;
  EXPECT_EQ(stage(kNode, 0), 0);
  config.comm.zero_stage = ZeroStage::kStage2;
  EXPECT_EQ(stage(hosts, 1), 2);
}

TEST(Decisions, OnlyTrainingSharesMemoryAndOnlyWhereRanksReachIt) {
  const graph::Graph model = small_model();
  const auto shares = [&](collectives::Topology placed, bool reached, RunPurpose purpose) {
    placed.shares_memory = reached;
    return choose_defaults(config_of(comm_of(1)), placed, purpose, {}, model)
        .sharding.topology.shares_memory;
  };
  EXPECT_TRUE(shares(kNode, true, RunPurpose::kTrain));
  EXPECT_FALSE(shares(kNode, false, RunPurpose::kTrain));
  EXPECT_FALSE(shares(kNode, true, RunPurpose::kEvaluate));
}

TEST(Decisions, TheStageTakesEffectWhereRanksTrain) {
  const graph::Graph model = small_model();
  const auto stage = [&](const collectives::Topology& placed, RunPurpose purpose) {
    return choose_defaults(config_of(comm_of(3)), placed, purpose, {}, model).sharding.zero_stage;
  };
  EXPECT_EQ(stage(kNode, RunPurpose::kTrain), 3);
  EXPECT_EQ(stage({}, RunPurpose::kTrain), 1);
  EXPECT_EQ(stage(kNode, RunPurpose::kPredict), 1);
}

TEST(Decisions, BucketsAreAsConfiguredOrDependOnTheModelAlone) {
  const graph::Graph model = small_model();
  const auto bucket_mib =
      [&](const CommConfig& comm, const collectives::Topology& placed, const exec::OpSet& ops) {
        return choose_defaults(config_of(comm), placed, RunPurpose::kTrain, ops, model).bucket_mib;
      };
  CommConfig configured = comm_of(1);
  configured.bucket_mib = 3;
  EXPECT_EQ(bucket_mib(configured, kNode, {}), 3);
  EXPECT_EQ(bucket_mib(comm_of(1), kNode, {}), bucket_mib(comm_of(1), {}, {}));
  EXPECT_LT(bucket_mib(comm_of(1), kNode, {}), 1);
  EXPECT_EQ(bucket_mib(comm_of(2), kNode, {}), 25);
  EXPECT_EQ(bucket_mib(comm_of(1), kNode, gpu()), 25);
}

TEST(Decisions, FastOrderKnowsNoNodes) {
  CommConfig comm = comm_of(1);
  comm.order = CommConfig::Order::kFast;
  EXPECT_EQ(choose_defaults(config_of(comm), kTwoNodes, RunPurpose::kTrain, {}, small_model())
                .sharding.topology,
            collectives::Topology::flat(4));
}

TEST(Decisions, ARunThatSavesOnItsWayHasASnapshot) {
  const graph::Graph model = small_model();
  const auto snapshot = [&](const RunConfig& config, RunPurpose purpose = RunPurpose::kTrain) {
    return choose_defaults(config, kNode, purpose, {}, model).snapshot;
  };
  RunConfig config;
  EXPECT_FALSE(snapshot(config)) << "the last checkpoint is waited for";
  config.eval.every = 5;
  EXPECT_TRUE(snapshot(config)) << "the best one is not";
  config.checkpoint.keep_best = false;
  EXPECT_FALSE(snapshot(config));
  config.checkpoint.every = 10;
  EXPECT_TRUE(snapshot(config));
  EXPECT_FALSE(snapshot(config, RunPurpose::kEvaluate));
  config.checkpoint.async = false;
  EXPECT_FALSE(snapshot(config));
  config.checkpoint = {};
  config.checkpoint.every_minutes = 0.5;
  EXPECT_TRUE(snapshot(config));
}

}  // namespace
}  // namespace lockstep::run
