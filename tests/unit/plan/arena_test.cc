// Catches: two tensors that need their memory at the same time and share it, a tensor or workspace
// outside the arena, and an in-place output over an input that somebody still reads.
#include <gtest/gtest.h>

#include "runtime/graph/builder.h"
#include "runtime/graph/ops/activation.h"
#include "runtime/graph/ops/add.h"
#include "runtime/graph/ops/dropout.h"
#include "runtime/plan/plan.h"
#include "tests/reference/models.h"

namespace lockstep::plan {
namespace {

constexpr size_t kWorkspace = 1000;

size_t some_workspace(const graph::Graph&, const graph::Op& op) {
  return op.kind == graph::OpKind::kLinear ? kWorkspace : 0;
}

// An op that may touch `tensor`, by index.
bool touches(const graph::Op& op, TensorId tensor) {
  const auto has = [&](const auto& ids) {
    return std::find(ids.begin(), ids.end(), tensor) != ids.end();
  };
  return has(op.inputs) || has(op.outputs);
}

// Replays the graph and checks, at each op, that every input still holds what its producer wrote.
void expect_values_survive(const graph::Graph& graph, const ProgramPlan& plan) {
  std::vector<TensorId> owner_of_byte(plan.arena_bytes, kNoTensor);
  const auto in_arena = [&](TensorId id) {
    return id != kNoTensor && plan.tensor_offsets[static_cast<size_t>(id)] != kNotInArena;
  };
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const graph::Op& op = graph.ops[i];
    for (TensorId id : op.inputs) {
      if (!in_arena(id)) continue;
      const size_t offset = plan.tensor_offsets[static_cast<size_t>(id)];
      for (size_t b = offset; b < offset + graph[id].bytes(); ++b)
        ASSERT_EQ(owner_of_byte[b], id)
            << "op " << i << " " << op.name << " reads " << graph[id].name;
    }
    const size_t workspace = some_workspace(graph, op);
    ASSERT_LE(plan.workspace_offsets[i] + workspace, plan.arena_bytes);
    for (size_t b = 0; b < workspace; ++b) {
      // A workspace may lie over anything but what its own op reads and writes.
      for (TensorId id : op.inputs)
        ASSERT_TRUE(!in_arena(id) || owner_of_byte[plan.workspace_offsets[i] + b] != id);
      owner_of_byte[plan.workspace_offsets[i] + b] = kNoTensor;
    }
    for (TensorId id : op.outputs) {
      if (!in_arena(id)) continue;
      const size_t offset = plan.tensor_offsets[static_cast<size_t>(id)];
      ASSERT_LE(offset + graph[id].bytes(), plan.arena_bytes);
      ASSERT_EQ(offset % 64, 0u);
      for (size_t b = offset; b < offset + graph[id].bytes(); ++b) owner_of_byte[b] = id;
    }
  }
  // The result is still there at the end.
  const size_t offset = plan.tensor_offsets[static_cast<size_t>(graph.result)];
  for (size_t b = offset; b < offset + graph[graph.result].bytes(); ++b)
    ASSERT_EQ(owner_of_byte[b], graph.result);
}

TEST(Arena, ValuesSurviveInEveryModelAndPurpose) {
  for (const graph::Purpose purpose :
       {graph::Purpose::kTraining, graph::Purpose::kEvaluation, graph::Purpose::kInference}) {
    const graph::Graph mlp =
        models::build_model(testing::small_mlp(), testing::small_mlp_io(), 3, purpose);
    expect_values_survive(mlp, plan_program(mlp, some_workspace));
    for (const float dropout : {0.0f, 0.1f}) {
      GptConfig config = testing::small_gpt();
      config.dropout = dropout;
      const graph::Graph gpt = models::build_model(config, {}, 2, purpose);
      expect_values_survive(gpt, plan_program(gpt, some_workspace));
    }
  }
}

TEST(Arena, SharesMemoryOverTime) {
  GptConfig config = testing::small_gpt();
  config.layers = 8;
  const graph::Graph graph = models::build_model(config, {}, 2, graph::Purpose::kEvaluation);
  const ProgramPlan plan = plan_program(graph, some_workspace);
  size_t all = 0;
  for (const graph::Tensor& tensor : graph.tensors) {
    if (tensor.role == graph::Role::kActivation) all += tensor.bytes();
  }
  EXPECT_LT(plan.arena_bytes * 4, all);
}

TEST(Arena, DropoutWorksInPlaceOnlyWhenItsInputDies) {
  graph::GraphBuilder builder(graph::Purpose::kTraining);
  const TensorId x = builder.input("x", {4, 8}, DType::kF32);
  const TensorId a = ops::activation(builder, "a", x, Activation::kRelu);
  const TensorId kept = ops::dropout(builder, "kept", a, 0.5f);
  const TensorId b = ops::activation(builder, "b", kept, Activation::kTanh);
  const TensorId sum = ops::add(builder, "sum", a, b);
  builder.keep(sum);
  const graph::Graph graph = std::move(builder).finish();
  const ProgramPlan plan =
      plan_program(graph, [](const graph::Graph&, const graph::Op&) { return size_t{0}; });
  EXPECT_NE(plan.tensor_offsets[static_cast<size_t>(kept)],
            plan.tensor_offsets[static_cast<size_t>(a)]);
  EXPECT_EQ(plan.tensor_offsets[static_cast<size_t>(b)],
            plan.tensor_offsets[static_cast<size_t>(kept)]);
  ASSERT_TRUE(touches(graph.ops.back(), a));
}

// Of every block but its input only what the block under way needs.
TEST(Arena, RecomputedBlocksTakeLess) {
  GptConfig config = testing::small_gpt();
  config.layers = 8;
  const auto arena_bytes = [&](bool recompute) {
    graph::GraphOptions options(graph::Purpose::kTraining);
    options.recompute = recompute;
    const graph::Graph graph = models::build_model(config, {}, 2, options);
    return plan_program(graph, [](const graph::Graph&, const graph::Op&) { return size_t{0}; })
        .arena_bytes;
  };
  EXPECT_LT(arena_bytes(true), arena_bytes(false) / 2);
}

}  // namespace
}  // namespace lockstep::plan
