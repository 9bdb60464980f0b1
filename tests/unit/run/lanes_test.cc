// Catches: train.lanes AUTO that means another number than its table or leaves a check out, a
// family whose trait hides its batch norms, and shares of lanes with another cost than reported.
#include "runtime/run/lanes.h"

#include <gtest/gtest.h>

#include "models/small_models.h"
#include "runtime/base/error.h"
#include "runtime/config/parse.h"
#include "runtime/config/run_config.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/plan/sharding_plan.h"
#include "runtime/run/config_checks.h"
#include "tests/reference/onnx_bytes.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep::run {
namespace {

using namespace testing::onnx_bytes;
using testing::TemporaryFolder;

OpenedConfig config(int64_t batch,
                    const std::string& model = "mlp { hidden: 4 }",
                    const std::vector<std::string>& overrides = {}) {
  const std::string text = "model { " + model +
                           " } data { synthetic { samples: 64 features: 2 classes: 2 } } optimizer "
                           "{ sgd {} } train { steps: 1 global_batch: " +
                           std::to_string(batch) + " }";
  const OpenedConfig opened = open_config(config::parse_config(text, "test", overrides));
  check_config(opened);
  return opened;
}

struct Row {
  int64_t batch;
  std::string model;
  int64_t recorded;
  int64_t lanes;
  std::string text;
};

TEST(ChooseLanes, FollowsTheTable) {
  const std::string mlp = "mlp { hidden: 4 }", resnet = "resnet { depth: 20 }",
                    norms = "batch norms take at least 16)";
  const std::vector<Row> rows = {
      {128, mlp, 0, 8, "8 (AUTO: 16 samples a lane)"},
      {8, mlp, 0, 8, "8 (AUTO: 1 sample a lane)"},
      {12, mlp, 0, 4, "4 (AUTO: 3 samples a lane)"},
      {6, mlp, 0, 2, "2 (AUTO: 3 samples a lane)"},
      {7, mlp, 0, 1, "1 (AUTO: 7 samples a lane)"},
      {128, resnet, 0, 8, "8 (AUTO: 16 samples a lane)"},
      {96, resnet, 0, 4, "4 (AUTO: 24 samples a lane, because " + norms},
      {64, resnet, 0, 4, "4 (AUTO: 16 samples a lane, because " + norms},
      {48, resnet, 0, 2, "2 (AUTO: 24 samples a lane, because " + norms},
      {24, resnet, 0, 1, "1 (AUTO: 24 samples a lane, because " + norms},
      {8, resnet, 0, 1, "1 (AUTO: 8 samples a lane, because " + norms},
      {64, "mobilenet_v2 {}", 0, 4, "4 (AUTO: 16 samples a lane, because " + norms},
      {64, "vgg { batch_norm: true }", 0, 4, "4 (AUTO: 16 samples a lane, because " + norms},
      {64, "vgg {}", 0, 8, "8 (AUTO: 8 samples a lane)"},
      {64, "resnet { depth: 20 sync_batch_norm: true }", 0, 8, "8 (AUTO: 8 samples a lane)"},
      {64, "lenet {}", 0, 8, "8 (AUTO: 8 samples a lane)"},
      // What the run to resume recorded, if it divides the batch.
      {64, resnet, 8, 8, "8 (AUTO, as the run recorded)"},
      {66, mlp, 3, 3, "3 (AUTO, as the run recorded)"},
      {64, mlp, 3, 8, "8 (AUTO: 8 samples a lane)"},
  };
  for (const Row& row : rows) {
    const ChosenLanes chosen = choose_lanes(config(row.batch, row.model), row.recorded);
    EXPECT_EQ(chosen.opened.config.train.lanes, row.lanes) << row.model << " " << row.batch;
    EXPECT_EQ(chosen.text, row.text) << row.model << " " << row.batch;
  }
}

TEST(ChooseLanes, KeepsWhatTheConfigNames) {
  const ChosenLanes chosen =
      choose_lanes(config(96, "resnet { depth: 20 }", {"train.lanes=12"}), 8);
  EXPECT_EQ(chosen.opened.config.train.lanes, 12);
  EXPECT_EQ(chosen.text, "");
}

// Networks from files: y = x w, with the nodes between.
std::string network(const std::vector<std::string>& between, const std::string& more) {
  std::vector<std::string> nodes = {node("MatMul", {"x", "w"}, {"h"})};
  nodes.insert(nodes.end(), between.begin(), between.end());
  std::vector<std::string> initializers = {
      tensor("w", {2, 2}, kFloat, bytes(9, raw(std::vector<float>{1, 2, 3, 4})))};
  if (!more.empty()) initializers.push_back(more);
  return model({nodes, initializers}, 18);
}

TEST(ChooseLanes, AsksNetworksFromFiles) {
  TemporaryFolder folder;
  folder.write("any.onnx", network({node("Relu", {"h"}, {"y"})}, ""));
  folder.write("mixes.onnx",
               network({node("ReduceMean", {"h", "axes"}, {"m"}), node("Sub", {"h", "m"}, {"y"})},
                       tensor("axes", {1}, kInt64, bytes(7, packed({0})))));
  folder.write("fixed.onnx",
               network({node("Reshape", {"h", "shape"}, {"y"})},
                       tensor("shape", {2}, kInt64, bytes(7, packed({4, 2})))));
  const auto choose = [&](const std::string& name, int64_t batch) {
    return choose_lanes(config(batch, "onnx { file: \"" + (folder.path() / name).string() + "\" }"))
        .text;
  };
  EXPECT_EQ(choose("any.onnx", 64), "8 (AUTO: 8 samples a lane)");
  EXPECT_EQ(choose("mixes.onnx", 64).substr(0, 47),
            "1 (AUTO, because samples mix at node ReduceMean");
  EXPECT_EQ(choose("fixed.onnx", 12), "3 (AUTO, because the network takes 4 samples at once)");
  EXPECT_EQ(choose("fixed.onnx", 64), "16 (AUTO, because the network takes 4 samples at once)");
}

std::string refusal(const OpenedConfig& opened) {
  try {
    choose_lanes(opened);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ChooseLanes, ChecksWhatDependsOnTheLanes) {
  const std::vector<std::string> groups = {
      "comm.wire_dtype=BF16", "comm.error_feedback=true", "comm.residual_groups=8"};
  EXPECT_EQ(refusal(config(64, "mlp { hidden: 4 }", groups)), "");
  EXPECT_EQ(refusal(config(64, "resnet { depth: 20 }", groups)),
            "comm.residual_groups: value is 8; allowed: 0, 1, 2, 4 with train.lanes 4");
  EXPECT_EQ(refusal(config(16, "lenet {}", {"train.mixup=0.2"})), "");
  EXPECT_EQ(refusal(config(8, "lenet {}", {"train.mixup=0.2"})).substr(0, 11), "train.mixup");
}

TEST(NormalisesLanes, IsTrueForTheFamiliesWhoseGraphsDo) {
  int normalise = 0;
  for (const models::SmallModel& small : models::small_models()) {
    if (small.purpose != graph::Purpose::kTraining) continue;
    graph::GraphOptions options(graph::Purpose::kTraining);
    options.lanes = small.lanes;
    bool expected = false;
    for (const graph::Op& op : small.build(options).ops)
      expected |=
          op.kind == graph::OpKind::kBatchNorm && !op.as<graph::BatchNormAttributes>().synchronised;
    EXPECT_EQ(models::open_model(small.config)->traits().normalises_lanes, expected) << small.name;
    normalise += expected ? 1 : 0;
  }
  EXPECT_GT(normalise, 1);
}

TEST(ParseRecordedConfig, MissingLanesAreTheFormerDefault) {
  std::string text = config::to_text(config(64).config);
  const size_t line = text.find("  lanes: 0\n");
  ASSERT_NE(line, std::string::npos) << text;
  EXPECT_EQ(config::parse_recorded_config(text, "test").train.lanes, 8);
  EXPECT_EQ(config::parse_recorded_config(text.replace(line, 11, ""), "test").train.lanes, 8);
}

LaneUse use_of(int64_t lanes, int64_t batch, int ranks, const std::vector<std::string>& more = {}) {
  std::vector<std::string> overrides = more;
  overrides.push_back("train.lanes=" + std::to_string(lanes));
  const RunConfig opened = config(batch, "mlp { hidden: 4 }", overrides).config;
  plan::ShardingPlan sharding;
  sharding.topology = collectives::Topology::flat(ranks);
  sharding.lanes = static_cast<int>(lanes);
  sharding.residual_groups = static_cast<int>(config::residual_groups(opened));
  return lane_use(opened, sharding.shares());
}

TEST(LaneUse, EvenSharesUseAll) {
  for (const auto& [lanes, ranks] : {std::pair(8, 1), {8, 4}, {8, 8}, {12, 3}, {24, 12}, {7, 7}}) {
    const LaneUse use = use_of(lanes, lanes, ranks);
    EXPECT_EQ(use.most, lanes / ranks);
    EXPECT_EQ(use.efficiency, 1);
    EXPECT_EQ(use.warning, "");
  }
}

TEST(LaneUse, UnevenSharesReportTheirCostAndTheRemedy) {
  const LaneUse six = use_of(8, 96, 6);
  EXPECT_EQ(six.most, 2);
  EXPECT_EQ(six.efficiency, 8.0 / 12);
  EXPECT_EQ(six.warning,
            "8 lanes on 6 ranks: 2 ranks have 2 lanes and 4 have 1, so at most 67% of the ranks' "
            "time is used, and 4 ranks are as fast; --set train.lanes=12 uses all of it");
  EXPECT_EQ(use_of(11, 11 * 12, 4).warning,
            "11 lanes on 4 ranks: 3 ranks have 3 lanes and 1 has 2, so at most 92% of the ranks' "
            "time is used; --set train.lanes=12 uses all of it");
  // No multiple of 7 divides the batch.
  EXPECT_EQ(
      use_of(8, 128, 7).warning,
      "8 lanes on 7 ranks: 1 rank has 2 lanes and 6 have 1, so at most 57% of the ranks' time "
      "is used, and 4 ranks are as fast; --set train.lanes=7 --set train.global_batch=126 "
      "uses all of it");
}

TEST(LaneUse, RanksHaveWholeResidualGroups) {
  const LaneUse use = use_of(
      24, 24, 4, {"comm.error_feedback=true", "comm.wire_dtype=BF16", "comm.residual_groups=6"});
  EXPECT_EQ(use.most, 8);
  EXPECT_EQ(use.efficiency, 0.75);
  EXPECT_EQ(use.warning,
            "24 lanes on 4 ranks: 2 ranks have 8 lanes and 2 have 4, so at most 75% of the ranks' "
            "time is used, and 3 ranks are as fast; a multiple of 4 as comm.residual_groups uses "
            "all of it");
}

}  // namespace
}  // namespace lockstep::run
