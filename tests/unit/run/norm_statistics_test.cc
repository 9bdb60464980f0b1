// Catches: norms that train although they see one value, lanes that are not counted together if
// norms are synchronised, and a warning that is missing or comes without a reason.
#include "runtime/run/norm_statistics.h"

#include <gtest/gtest.h>

#include "models/registry.h"
#include "runtime/base/error.h"
#include "runtime/graph/ops/group_norm.h"
#include "tests/reference/opened_models.h"

namespace lockstep::run {
namespace {

// Images of `side` pixels in lanes.
std::vector<std::string> check(ModelConfig model, int64_t side, int64_t batch, int64_t lanes) {
  RunConfig config;
  config.train.global_batch = batch;
  config.train.lanes = lanes;
  const models::ModelIo io = {.classes = 4,
                              .height = side,
                              .width = side,
                              .channels = 3,
                              .mean = {0, 0, 0},
                              .std = {1, 1, 1}};
  config.model = testing::resolved(model, io);
  graph::GraphOptions options(graph::Purpose::kTraining);
  options.lanes = static_cast<int>(lanes);
  return check_norm_statistics(config,
                               models::build_model(config.model, io, batch / lanes, options));
}

void expect_refused(const ModelConfig& model,
                    int64_t side,
                    int64_t batch,
                    int64_t lanes,
                    const std::vector<std::string>& parts) {
  try {
    check(model, side, batch, lanes);
    ADD_FAILURE() << "not refused";
  } catch (const ConfigError& error) {
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

ResnetConfig resnet(bool synchronised) {
  ResnetConfig config;
  config.depth = 20;
  config.sync_batch_norm = synchronised;
  return config;
}

// The last of three stages has a fourth of the side.
TEST(NormStatistics, OneValueIsRefused) {
  expect_refused(resnet(false),
                 4,
                 8,
                 8,
                 {"train.global_batch: value is 8",
                  "each of 8 lanes has 1 sample",
                  "layer3.0.bn1.weight",
                  "1 value",
                  "fewer train.lanes",
                  "model.resnet.sync_batch_norm: true"});
  expect_refused(
      resnet(true), 4, 1, 1, {"the only lane has 1 sample", "larger train.global_batch"});
  VggConfig vgg;
  vgg.batch_norm = true;
  expect_refused(MobilenetV2Config{}, 32, 8, 8, {"model.mobilenet_v2.sync_batch_norm"});
  EXPECT_EQ(check(vgg, 32, 8, 8).size(), 1u);  // its last norm sees 4 pixels
}

TEST(NormStatistics, FewValuesAreTold) {
  const std::vector<std::string> few = check(resnet(false), 4, 120, 8);
  ASSERT_EQ(few.size(), 1u);
  EXPECT_NE(few[0].find("15 values"), std::string::npos) << few[0];
  EXPECT_TRUE(check(resnet(false), 4, 128, 8).empty());
  EXPECT_EQ(check(resnet(true), 4, 8, 8).size(), 1u);
  EXPECT_TRUE(check(resnet(true), 4, 16, 8).empty());
  EXPECT_TRUE(check(LenetConfig{}, 28, 8, 8).empty());
}

// x (2, `pixels`, 6) in groups of channels.
graph::Graph group_norm(int64_t pixels, int64_t groups) {
  graph::GraphBuilder builder{graph::GraphOptions(graph::Purpose::kTraining)};
  const TensorId x = builder.input("x", {2, pixels, 6}, DType::kF32);
  builder.keep(ops::group_norm(builder, "norm", x, kNoTensor, kNoTensor, {.groups = groups}));
  return std::move(builder).finish();
}

TEST(NormStatistics, GroupsOfOneValueAreRefused) {
  RunConfig config;
  config.model = OnnxConfig{};
  for (const auto& [pixels, groups] : {std::pair(1, 6), std::pair(1, 3), std::pair(2, 6)}) {
    if (pixels * 6 / groups > 1)
      EXPECT_TRUE(check_norm_statistics(config, group_norm(pixels, groups)).empty());
    else
      EXPECT_THROW(check_norm_statistics(config, group_norm(pixels, groups)), ConfigError);
  }
}

}  // namespace
}  // namespace lockstep::run
