// Catches: anything in a whole convolutional network that makes loss, gradients or running
// statistics other than PyTorch's. See tests/golden/generate_vision.py.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <string>

#include "collectives/reduce/step_totals.h"
#include "models/registry.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/checkpoint/format/file_layout.h"
#include "runtime/cpu/backend.h"
#include "runtime/exec/executor.h"
#include "runtime/plan/layout.h"
#include "runtime/train/state/initialize.h"
#include "tests/reference/opened_models.h"
#include "tests/reference/sanitizers.h"

namespace lockstep::exec {
namespace {

constexpr int64_t kImages = 4, kSide = 64, kClasses = 10;

// Number i of a stream: what generate_vision.py calls words().
uint32_t word(uint64_t i, uint32_t seed) {
  auto x = static_cast<uint32_t>(i * 2654435761u + seed * 40503u);
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}
double uniform(uint64_t i, uint32_t seed) { return (word(i, seed) >> 8) * 0x1p-23 - 1; }

models::ModelIo image_io() {
  return {.classes = kClasses,
          .height = kSide,
          .width = kSide,
          .channels = 3,
          .mean = {0.5f, 0.4375f, 0.375f},
          .std = {0.25f, 0.25f, 0.3125f}};
}

// The parameters, made in the order of files.
void set_weights(const plan::ParameterLayout& layout, float* parameters) {
  std::map<std::string, size_t> sorted;
  for (size_t i = 0; i < layout.slots.size(); ++i) {
    if (layout.slots[i].running_momentum == 0) sorted[layout.slots[i].name] = i;
  }
  const std::vector<checkpoint::NamedSlice> slices = train::named_slices(layout);
  uint32_t seed = 0;
  for (const auto& [name, number] : sorted) {
    ++seed;
    const checkpoint::NamedSlice& slice = slices[number];
    const auto elements = static_cast<size_t>(slice.shape.elements());
    std::vector<float> values(elements);
    const double fan_in = static_cast<double>(slice.shape.elements() / slice.shape[0]);
    const auto scale = static_cast<float>(std::sqrt(4 / fan_in));
    for (size_t i = 0; i < elements; ++i) {
      double value = uniform(i, seed);
      if (slice.shape.rank() > 1) {
        value *= scale;
      } else {
        value = value * 0.25 + (name.ends_with("weight") ? 1 : 0);
        if (name.ends_with("bn3.weight")) value /= 4;
      }
      values[i] = static_cast<float>(value);
    }
    float* const to = parameters + slice.offset;
    if (checkpoint::is_reordered(slice)) {
      checkpoint::from_file_order(slice, values.data(), to);
    } else {
      std::copy(values.begin(), values.end(), to);
    }
  }
}

struct Golden {
  const char* name;  // of the file
  ModelConfig model;
  float mix = 1;
  bool kinks = false;  // some lie so near that rounding decides, in PyTorch too
};

void compare(const Golden& of, bool bf16x3) {
  SCOPED_TRACE(bf16x3 ? "bf16x3" : "floats");
  const std::filesystem::path folder = LOCKSTEP_GOLDEN;
  const Json golden = Json::parse(read_file(folder / (std::string(of.name) + ".json"), 1 << 20));
  const ModelConfig model = testing::resolved(of.model, image_io());
  graph::GraphOptions options(graph::Purpose::kTraining);
  options.bf16x3 = bf16x3;
  const graph::Graph graph = models::build_model(model, image_io(), kImages, options);
  const plan::ParameterLayout layout = plan::make_layout(graph, 1);
  const auto backend = cpu::make_backend();
  const plan::ProgramPlan plan =
      plan::plan_program(graph, [&](const graph::Graph& g, const graph::Op& op) {
        return backend->ops().op_workspace_bytes(g, op);
      });
  const auto floats = [&] {
    return reinterpret_cast<float*>(
        backend->allocate(static_cast<size_t>(layout.elements) * sizeof(float), "test"));
  };
  float *parameters = floats(), *gradients = floats();
  set_weights(layout, parameters);
  std::vector<uint8_t> pixels(kImages * kSide * kSide * 3);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(word(i, 1001) >> 24);
  std::vector<int32_t> labels;
  for (int32_t i = 0; i < kImages; ++i) labels.push_back((3 * i + 1) % kClasses);
  Executor executor(
      graph,
      plan,
      layout,
      *backend,
      {backend->allocate(plan.arena_bytes, "arena"), reinterpret_cast<std::byte*>(parameters)});
  const graph::LaneContext lane = {.valid_rows = kImages, .gradient_scale = 1, .mix = of.mix};
  collectives::LaneStatistics statistics;
  executor.run(lane,
               reinterpret_cast<const std::byte*>(pixels.data()),
               reinterpret_cast<const std::byte*>(labels.data()),
               gradients,
               nullptr,
               reinterpret_cast<std::byte*>(&statistics));

  const auto loss = golden["loss"].get<double>();
  EXPECT_NEAR(statistics.values[graph::kLossSum], loss, 1e-5 * loss);
  const Json& tensors = golden["tensors"];
  const auto rounding = golden["float32_deviation"].get<double>();
  size_t compared = 0;
  for (const checkpoint::NamedSlice& slice : train::named_slices(layout)) {
    const bool statistic = slice.name.find("running_") != std::string::npos;
    const Json& expected = tensors[statistic ? slice.name : "d_" + slice.name];
    const auto elements = static_cast<size_t>(slice.shape.elements());
    std::vector<float> values(gradients + slice.offset, gradients + slice.offset + elements);
    if (checkpoint::is_reordered(slice))
      checkpoint::to_file_order(slice, gradients + slice.offset, values.data());
    // PyTorch's own update of the running statistics, which begin with 0 and 1.
    const bool variance = slice.name.ends_with("running_var");
    if (statistic) {
      for (float& value : values) value = 0.1f * value + (variance ? 0.9f : 0.0f);
    }
    double squares = 0;
    for (const float value : values) squares += static_cast<double>(value) * value;
    const auto norm = expected["norm"].get<double>();
    // Rounding moves PyTorch's own gradients by up to 1e-5 of a tensor's norm in float32; a mistake
    // in a layer by far more than a thousandth. The gradient of a bias before a batch norm is zero.
    // Where rounding decides a kink, gradients are other ones before it; statistics are not.
    const double relative = of.kinks && !statistic ? 3 * rounding : 1e-3;
    const double tolerance = std::max(relative * norm, 1e-4);
    EXPECT_NEAR(std::sqrt(squares), norm, tolerance) << slice.name;
    for (size_t k = 0; k < expected["at"].size(); ++k)
      EXPECT_NEAR(
          values[expected["at"][k].get<uint64_t>()], expected["values"][k].get<double>(), tolerance)
          << slice.name << "[" << expected["at"][k].dump() << "]";
    ++compared;
  }
  EXPECT_EQ(compared, tensors.size());
}

void compare(const Golden& of) {
  for (bool bf16x3 : {false, true}) compare(of, bf16x3);
}

TEST(VisionGolden, Resnet18) { compare({"resnet18", ResnetConfig{.depth = 18}}); }
TEST(VisionGolden, Resnet18WithMixup) {
  compare({"resnet18_mixup", ResnetConfig{.depth = 18, .label_smoothing = 0.125f}, 0.6875f});
}
TEST(VisionGolden, Resnet50) {
  LOCKSTEP_SKIP_WITH_SANITIZERS();
  compare({"resnet50", ResnetConfig{.depth = 50}});
}
TEST(VisionGolden, Vgg16) {
  LOCKSTEP_SKIP_WITH_SANITIZERS();
  compare({"vgg16", VggConfig{.dropout = 0}});
}
TEST(VisionGolden, Vgg16WithNorms) {
  LOCKSTEP_SKIP_WITH_SANITIZERS();
  compare({"vgg16_norms", VggConfig{.batch_norm = true, .dropout = 0, .label_smoothing = 0.125f}});
}
TEST(VisionGolden, AlexnetWithMixup) { compare({"alexnet", AlexnetConfig{.dropout = 0}, 0.6875f}); }
TEST(VisionGolden, AlexnetWithLocalResponseNorms) {
  compare({"alexnet_norms", AlexnetConfig{.local_response_norm = true, .dropout = 0}});
}
TEST(VisionGolden, MobilenetV2) {
  compare({.name = "mobilenet_v2",
           .model = MobilenetV2Config{.dropout = 0, .label_smoothing = 0.125f},
           .kinks = true});
}
TEST(VisionGolden, Resnext50WithMixup) {
  LOCKSTEP_SKIP_WITH_SANITIZERS();
  compare({"resnext50",
           ResnetConfig{.depth = 50, .groups = 32, .width_per_group = 4},
           0.6875f,
           /*kinks=*/true});
}
TEST(VisionGolden, Lenet) {
  compare(
      {"lenet",
       LenetConfig{.activation = Activation::kTanh, .pooling = LenetConfig::Pooling::kAverage}});
}

}  // namespace
}  // namespace lockstep::exec
