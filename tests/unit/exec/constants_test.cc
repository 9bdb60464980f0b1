// Constants of a graph: planned to the byte, each program's behind those of the one before, and
// there when an op reads them.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "runtime/base/half.h"
#include "runtime/cpu/backend.h"
#include "runtime/exec/executor.h"
#include "runtime/graph/autodiff.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/add.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/pointwise_losses.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/plan.h"

namespace lockstep::exec {
namespace {

constexpr int64_t kWidth = 3;

// y = x + table.
graph::Graph adds_a_table(float first) {
  graph::GraphBuilder builder{graph::GraphOptions(graph::Purpose::kInference)};
  const TensorId x = builder.input("x", {1, kWidth}, DType::kF32);
  const TensorId table =
      builder.constant("table", {1, kWidth}, std::vector<float>{first, first + 1, first + 2});
  builder.keep(ops::add(builder, "sum", x, table));
  return std::move(builder).finish();
}

// What it gives for x = 10, 20, 30, in memory for `constant_bytes` of constants.
std::vector<float> run(const graph::Graph& graph,
                       const plan::ProgramPlan& plan,
                       Backend& backend,
                       std::byte* constants) {
  Executor executor(graph,
                    plan,
                    plan::make_layout(graph, 1),
                    backend,
                    {.arena = backend.allocate(plan.arena_bytes, "arena"), .constants = constants});
  const std::span<float> input = backend.host_array<float>(kWidth),
                         result = backend.host_array<float>(kWidth);
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(10 * (i + 1));
  const std::span<graph::LaneContext> lane = backend.host_array<graph::LaneContext>(1);
  executor.run(lane.front(),
               reinterpret_cast<const std::byte*>(input.data()),
               nullptr,
               nullptr,
               nullptr,
               reinterpret_cast<std::byte*>(result.data()));
  return {result.begin(), result.end()};
}

TEST(Constants, AreThereWhenAnOpReadsThem) {
  const std::unique_ptr<Backend> backend = cpu::make_backend();
  const graph::Graph first = adds_a_table(1), second = adds_a_table(100);
  const auto none = [](const graph::Graph&, const graph::Op&) { return size_t{0}; };
  plan::ProgramPlan first_plan = plan::plan_program(first, none),
                    second_plan = plan::plan_program(second, none);
  ASSERT_EQ(first_plan.constants.size(), 1u);
  EXPECT_GE(first_plan.constant_bytes, kWidth * sizeof(float));
  second_plan.constants.front().offset += first_plan.constant_bytes;
  std::byte* const memory =
      backend->allocate(first_plan.constant_bytes + second_plan.constant_bytes, "constants");
  EXPECT_EQ(run(first, first_plan, *backend, memory), (std::vector<float>{11, 22, 33}));
  EXPECT_EQ(run(second, second_plan, *backend, memory), (std::vector<float>{110, 121, 132}));
  EXPECT_EQ(run(first, first_plan, *backend, memory), (std::vector<float>{11, 22, 33}));
}

// y = W x + table, with a loss or not.
graph::Graph learns_beside_a_table(graph::Purpose purpose) {
  graph::GraphBuilder builder((graph::GraphOptions(purpose)));
  const TensorId x = builder.input("x", {2, kWidth}, DType::kF32);
  const TensorId target = builder.input("target", {2, kWidth}, DType::kF32);
  const TensorId weight = builder.parameter("weight", {kWidth, kWidth}, {}, true);
  const TensorId y = ops::linear(builder, "layer", x, weight, kNoTensor, Activation::kNone);
  const TensorId table = builder.constant("table", {2, kWidth}, std::vector<float>(6, 1));
  ops::mean_squared_error(builder, ops::add(builder, "sum", y, table), target);
  graph::Graph graph = std::move(builder).finish();
  if (purpose == graph::Purpose::kTraining) graph::differentiate(graph);
  return graph;
}

TEST(Constants, ArePlannedForEachProgramAndHaveNoGradient) {
  const graph::Graph training = learns_beside_a_table(graph::Purpose::kTraining),
                     evaluation = learns_beside_a_table(graph::Purpose::kEvaluation);
  const auto none = [](const graph::Graph&, const graph::Op&) { return size_t{0}; };
  const plan::Plan plan = plan::make_plan({training, evaluation}, {}, none);
  ASSERT_EQ(plan.programs.training.constants.size(), 1u);
  ASSERT_EQ(plan.programs.evaluation.constants.size(), 1u);
  EXPECT_EQ(plan.programs.training.constants.front().offset, 0u);
  EXPECT_EQ(plan.programs.evaluation.constants.front().offset,
            plan.programs.training.constant_bytes);
  EXPECT_EQ(plan.memory.row_bytes(plan::RowKind::kConstants),
            plan.programs.training.constant_bytes + plan.programs.evaluation.constant_bytes);
  for (const graph::Op& op : training.ops) {
    for (const TensorId output : op.outputs)
      EXPECT_TRUE(output == kNoTensor || training[output].role != graph::Role::kConstant)
          << op.name;
  }
}

TEST(Constants, AreRoundedToTheComputeType) {
  graph::GraphOptions options(graph::Purpose::kInference);
  options.compute = DType::kBF16;
  graph::GraphBuilder builder(options);
  const TensorId table = builder.constant("table", {1}, std::vector<float>{1.00390625f});
  EXPECT_EQ(builder[table].dtype, DType::kBF16);
  const auto* stored = reinterpret_cast<const BFloat16*>(builder[table].constant->data());
  EXPECT_EQ(to_float(*stored), 1.0f);  // half a unit in the last place: to the even one
  const TensorId ids = builder.constant("ids", {2}, std::vector<int32_t>{7, -1});
  EXPECT_EQ(builder[ids].dtype, DType::kI32);
  EXPECT_EQ(reinterpret_cast<const int32_t*>(builder[ids].constant->data())[1], -1);
}

}  // namespace
}  // namespace lockstep::exec
