// Catches: a start that binds the network of an ONNX file again for each question, and answers that
// differ because networks are shared.
#include <gtest/gtest.h>

#include "models/onnx/network.h"
#include "runtime/config/parse.h"
#include "runtime/cpu/device.h"
#include "runtime/run/config_checks.h"
#include "runtime/run/lanes.h"
#include "runtime/run/prepared_run.h"
#include "tests/reference/onnx_bytes.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep::run {
namespace {

using namespace testing;
using namespace testing::onnx_bytes;

constexpr int64_t kMaxBinds = 3;

// y = x w, for any batch; with `mixes` the mean of the batch is subtracted.
std::string network(bool mixes) {
  std::vector<std::string> nodes = {node("MatMul", {"x", "w"}, {mixes ? "h" : "y"})};
  if (mixes) {
    nodes.push_back(node("ReduceMean", {"h", "val_0"}, {"m"}));
    nodes.push_back(node("Sub", {"h", "m"}, {"y"}));
  }
  std::vector<std::string> initializers = {
      tensor("w", {2, 2}, kFloat, bytes(9, raw(std::vector<float>{1, 2, 3, 4})))};
  if (mixes) initializers.push_back(tensor("val_0", {1}, kInt64, bytes(7, packed({0}))));
  return model({nodes, initializers}, 18);
}

class OnnxBinds : public ::testing::Test {
 protected:
  // A start of `train`, without data files, or of `plan`.
  PreparedRun start(int64_t global_batch, int64_t lanes, bool plan) {
    const std::string text =
        "model { onnx { file: \"" + (folder_.path() / "m.onnx").string() +
        "\" } } execution { precision: FP32 } data { synthetic { samples: 64 features: 2 classes: 2 } }"
        " optimizer { sgd {} } train { steps: 1 global_batch: " +
        std::to_string(global_batch) + " lanes: " + std::to_string(lanes) + " }";
    const OpenedConfig given = open_config(config::parse_config(text, "test", {}));
    check_config(given);
    const OpenedConfig opened = choose_lanes(given).opened;
    static const std::unique_ptr<exec::Device> cpu = cpu::make_device();
    return prepare_run(
        opened, collectives::Topology{}, RunPurpose::kTrain, cpu->ops(), {.may_assume_data = plan});
  }
  int64_t binds_of(int64_t global_batch, int64_t lanes, bool plan) {
    const int64_t before = onnx::bind_count();
    start(global_batch, lanes, plan);
    return onnx::bind_count() - before;
  }
  TemporaryFolder folder_;
};

TEST_F(OnnxBinds, AStartBindsThreeTimesAtMost) {
  folder_.write("m.onnx", network(false));
  for (const bool plan : {false, true})
    for (const auto& [batch, lanes] :
         {std::pair(64, 4), std::pair(8, 8), std::pair(16, 1), std::pair(64, 0)}) {
      const int64_t binds = binds_of(batch, lanes, plan);
      EXPECT_GE(binds, 2);
      EXPECT_LE(binds, kMaxBinds) << batch << " samples in " << lanes << " lanes";
    }
}

TEST_F(OnnxBinds, MixingIsStillFound) {
  folder_.write("m.onnx", network(true));
  for (const int64_t lanes : {0, 1}) EXPECT_NO_THROW(start(16, lanes, false));
  for (const int64_t lanes : {2, 8, 16}) EXPECT_THROW(start(16, lanes, false), ConfigError);
}

}  // namespace
}  // namespace lockstep::run
