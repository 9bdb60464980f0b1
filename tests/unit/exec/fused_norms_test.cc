// Catches: a whole network that computes something else once its norms are part of its
// convolutions: an activation whose memory is reused too early, a norm or a shortcut lost, work
// counted twice or not at all, more memory than before.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "runtime/base/rng.h"
#include "runtime/cpu/backend.h"
#include "runtime/exec/executor.h"
#include "runtime/graph/fusion.h"
#include "runtime/plan/layout.h"
#include "runtime/train/state/initialize.h"
#include "tests/reference/models.h"
#include "tests/reference/opened_models.h"
#include "tests/reference/sanitizers.h"

namespace lockstep::exec {
namespace {

constexpr int64_t kImages = 3;

int count(const graph::Graph& graph, graph::OpKind kind) {
  return static_cast<int>(std::count_if(
      graph.ops.begin(), graph.ops.end(), [&](const graph::Op& op) { return op.kind == kind; }));
}

struct Outcome {
  std::vector<float> logits;
  int64_t flops;
  size_t arena_bytes;
};

// A network with weights, statistics and images at random.
Outcome run(const graph::Graph& graph, const plan::ParameterLayout& layout) {
  const std::unique_ptr<Backend> backend = cpu::make_backend();
  const plan::ProgramPlan plan =
      plan::plan_program(graph, [&](const graph::Graph& g, const graph::Op& op) {
        return backend->ops().op_workspace_bytes(g, op);
      });
  auto* const parameters = reinterpret_cast<float*>(
      backend->allocate(static_cast<size_t>(layout.elements) * sizeof(float), "parameters"));
  train::initialize_parameters(layout, 7, parameters);
  for (const plan::ParameterSlot& slot : layout.slots) {
    const bool statistic = slot.running_momentum > 0;
    for (int64_t i = 0; i < slot.elements && (statistic || slot.shape.rank() == 1); ++i) {
      const uint32_t word = philox_word({3, 0, 0, 1}, static_cast<uint64_t>(slot.offset + i));
      parameters[slot.offset + i] += 0.8f * (uniform_from_word(word) - 0.5f);
    }
  }
  std::vector<uint32_t> pixels(
      graph[graph.inputs[graph::GraphIn::kInput]].bytes() / sizeof(uint32_t) + 1);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = philox_word({11, 0, 0, 1}, i);
  Executor executor(
      graph,
      plan,
      layout,
      *backend,
      {backend->allocate(plan.arena_bytes, "arena"), reinterpret_cast<std::byte*>(parameters)});
  const graph::LaneContext lane = {.valid_rows = kImages};
  std::vector<float> logits(static_cast<size_t>(graph.shape(graph.result).elements()));
  executor.run(lane,
               reinterpret_cast<const std::byte*>(pixels.data()),
               nullptr,
               nullptr,
               nullptr,
               reinterpret_cast<std::byte*>(logits.data()));
  return {logits, plan.flops, plan.arena_bytes};
}

void compare(const ModelConfig& model, int64_t side, bool bf16x3) {
  SCOPED_TRACE(bf16x3 ? "bf16x3" : "floats");
  models::ModelIo io = testing::small_image_io();
  io.height = io.width = side;
  graph::GraphOptions options(graph::Purpose::kInference);
  options.bf16x3 = bf16x3;
  const graph::Graph apart =
      models::build_model(testing::resolved(model, io), io, kImages, options);
  graph::Graph fused = apart;
  const std::unique_ptr<Backend> backend = cpu::make_backend();
  graph::fuse_batch_norms(fused, [&](const graph::Graph& g, const graph::Op& op) {
    return backend->ops().supports(g, op);
  });
  EXPECT_EQ(count(fused, graph::OpKind::kBatchNorm), 0);
  EXPECT_EQ(count(fused, graph::OpKind::kConv2dBatchNorm), count(apart, graph::OpKind::kBatchNorm));
  ASSERT_GT(count(apart, graph::OpKind::kBatchNorm), 0);
  const plan::ParameterLayout layout = plan::make_layout(
      models::build_model(testing::resolved(model, io), io, kImages, graph::Purpose::kTraining), 1);
  const Outcome expected = run(apart, layout), actual = run(fused, layout);
  // The same roundings in the same order.
  EXPECT_EQ(actual.logits, expected.logits);
  EXPECT_GT(*std::max_element(expected.logits.begin(), expected.logits.end()),
            *std::min_element(expected.logits.begin(), expected.logits.end()));
  EXPECT_EQ(actual.flops, expected.flops);
  // But for a norm's scale, of at most 2048 channels, in a convolution's workspace.
  EXPECT_LE(actual.arena_bytes, expected.arena_bytes + 2048 * sizeof(float));
}

void compare(const ModelConfig& model, int64_t side) {
  for (bool bf16x3 : {false, true}) compare(model, side, bf16x3);
}

ResnetConfig resnet(int64_t depth) {
  ResnetConfig config = testing::small_resnet();
  config.depth = depth;
  return config;
}

TEST(FusedNorms, Resnet20) { compare(resnet(20), 32); }
TEST(FusedNorms, Resnet20WithPaddedShortcuts) {
  ResnetConfig config = resnet(20);
  config.shortcut = ResnetConfig::Shortcut::kPadded;
  compare(config, 32);
}
TEST(FusedNorms, Resnet18) { compare(resnet(18), 64); }
TEST(FusedNorms, Resnet50) {
  LOCKSTEP_SKIP_WITH_SANITIZERS();
  compare(resnet(50), 64);
}
TEST(FusedNorms, Vgg) {
  LOCKSTEP_SKIP_WITH_SANITIZERS();
  VggConfig config;
  config.batch_norm = true;
  config.classes = 7;
  compare(config, 32);
}

}  // namespace
}  // namespace lockstep::exec
