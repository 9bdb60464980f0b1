// Catches: memory rows that do not follow ranks, lanes and optimizer, and a flop count that is off.
#include "runtime/plan/plan.h"

#include <gtest/gtest.h>

#include "tests/reference/models.h"

namespace lockstep {
namespace {

size_t none(const Graph&, const Op&) { return 0; }

Plan plan_for(int ranks, int lanes, int moments) {
  const Graph graph = build_model(testing::small_gpt(), {}, 2, Purpose::kTraining);
  PlanOptions options;
  options.topology = Topology::flat(ranks);
  options.lanes = lanes;
  options.moments = moments;
  options.bucket_mib = 0.01;
  return make_plan(graph, nullptr, options, none);
}

TEST(Plan, RowsFollowRanksAndLanes) {
  const Plan one = plan_for(1, 8, 2), four = plan_for(4, 8, 2);
  const size_t flat = static_cast<size_t>(one.layout.elements) * 4;
  EXPECT_EQ(one.layout.elements, four.layout.elements);  // the layout does not depend on the ranks
  EXPECT_EQ(one.row_bytes(kParametersRow), flat);
  EXPECT_EQ(one.row_bytes(kGradientsRow), 4 * flat);
  EXPECT_EQ(four.row_bytes(kGradientsRow), 2 * flat);
  EXPECT_EQ(one.row_bytes(kMomentsRow), 2 * flat);
  EXPECT_EQ(four.row_bytes(kMomentsRow), flat / 2);
  EXPECT_EQ(one.row_bytes(kStagingRow), 0u);
  EXPECT_EQ(four.row_bytes(kStagingRow), 2 * 4 * static_cast<size_t>(largest_bucket(four.buckets)));
  EXPECT_EQ(one.wire_bytes, 0);
  EXPECT_EQ(four.wire_bytes, static_cast<int64_t>(2 * flat / 4 * 3));
  size_t sum = 0;
  for (const MemoryRow& row : one.memory) sum += row.bytes;
  EXPECT_EQ(one.memory_bytes(), sum);
}

// Four nodes of two ranks: half of the gradients cross the node's border of a rank, and of that
// three quarters go to other nodes; the parameters come back the same way.
TEST(Plan, CountsWhatLeavesTheNode) {
  const Graph graph = build_model(testing::small_gpt(), {}, 2, Purpose::kTraining);
  PlanOptions options;
  options.topology = {4, 2};
  options.lanes = 8;
  const Plan plan = make_plan(graph, nullptr, options, none);
  const int64_t flat = plan.layout.elements * 4;
  EXPECT_EQ(plan.topology.ranks(), 8);
  EXPECT_EQ(plan.wire_bytes, 2 * (flat / 2 + flat / 2 / 4 * 3));
  EXPECT_EQ(plan.network_bytes, 2 * flat / 2 / 4 * 3);
}

TEST(Plan, CountsTheFlopsOfAnMlp) {
  MlpConfig config;
  config.hidden = {20};
  config.outputs = 3;
  const Graph graph = build_model(config, {.features = 10, .classes = 3}, 7, Purpose::kEvaluation);
  const ProgramPlan plan = plan_program(graph, none);
  const int64_t products = 2 * 7 * (10 * 20 + 20 * 3);
  EXPECT_GE(plan.flops, products);
  EXPECT_LT(plan.flops, products + 8 * 7 * 3 + 1);
}

}  // namespace
}  // namespace lockstep
