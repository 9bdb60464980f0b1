// Catches: a device that lacks an op and does not say which model it cannot run.
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/run/prepared_run.h"
#include "tests/reference/prepared.h"

namespace lockstep::launcher {
namespace {

TEST(UnsupportedModel, IsNamed) {
  RunConfig config;
  config.model = ResnetConfig{};
  config.data.source = SyntheticConfig{.samples = 64};
  config.train.global_batch = 8;
  config.train.steps = 1;
  static constexpr DType kTypes[] = {DType::kF32};
  exec::OpSet nothing = {"none", {}, kTypes, true, 0, 1, 4096, 8, nullptr};
  try {
    testing::prepare(config, collectives::Topology{}, run::RunPurpose::kTrain, nothing);
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("model.resnet: device none cannot run image_normalize"), std::string::npos)
        << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace lockstep::launcher
