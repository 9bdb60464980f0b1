// Catches: parameters that overlap in the flat buffer, and a bucket declared complete before its
// last gradient is written.
#include "runtime/plan/layout.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/reference/models.h"

namespace lockstep {
namespace {

TEST(Layout, SlotsAreDisjointAlignedAndWithinTheBuffer) {
  const Graph graph = build_model(testing::small_gpt(), {}, 2, Purpose::kTraining);
  const ParameterLayout layout = make_layout(graph, 8);
  std::vector<const ParameterSlot*> slots;
  for (const ParameterSlot& slot : layout.slots) slots.push_back(&slot);
  std::sort(slots.begin(), slots.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
  int64_t end = 0, parameters = 0;
  for (const ParameterSlot* slot : slots) {
    EXPECT_GE(slot->offset, end);
    EXPECT_EQ(slot->offset % 16, 0);
    end = slot->offset + slot->elements;
    parameters += slot->elements;
  }
  EXPECT_LE(end, layout.elements);
  EXPECT_EQ(parameters, layout.parameters);
  EXPECT_EQ(parameters, graph.parameter_count());
}

TEST(Layout, GradientsFinishInTheOrderOfTheBuffer) {
  const Graph graph = build_model(testing::small_gpt(), {}, 2, Purpose::kTraining);
  const ParameterLayout layout = make_layout(graph, 1);
  const auto offset_of = [&](const std::string& name) {
    const auto slot = std::find_if(
        layout.slots.begin(), layout.slots.end(), [&](auto& s) { return s.name == name; });
    return slot->offset;
  };
  EXPECT_LT(offset_of("transformer.ln_f.weight"), offset_of("transformer.h.1.mlp.c_proj.weight"));
  EXPECT_LT(offset_of("transformer.h.1.mlp.c_proj.weight"),
            offset_of("transformer.h.0.mlp.c_proj.weight"));
  // The tied embedding is the head's weight too, but is complete only when the embedding has run
  // backward.
  EXPECT_LT(offset_of("transformer.h.0.ln_1.weight"), offset_of("transformer.wte.weight"));
}

TEST(Layout, BucketsAreReadyAfterTheirLastWriterAndInOrder) {
  const Graph graph = build_model(testing::small_gpt(), {}, 2, Purpose::kTraining);
  const ParameterLayout layout = make_layout(graph, 2);
  const auto buckets = make_buckets(layout.elements, 2, 512);
  ASSERT_GT(buckets.size(), 4u);
  const auto schedule = bucket_schedule(graph, layout, buckets);
  int next = 0;
  for (size_t op = 0; op < schedule.size(); ++op) {
    for (int bucket : schedule[op]) {
      EXPECT_EQ(bucket, next++);
      for (size_t i = 0; i < layout.slots.size(); ++i) {
        const ParameterSlot& slot = layout.slots[i];
        if (slot.offset >= buckets[static_cast<size_t>(bucket)].end ||
            slot.offset + slot.elements <= buckets[static_cast<size_t>(bucket)].begin)
          continue;
        for (size_t later = op + 1; later < graph.ops.size(); ++later) {
          const auto& outputs = graph.ops[later].outputs;
          EXPECT_EQ(std::count(outputs.begin(), outputs.end(), graph[graph.parameters[i]].gradient),
                    0)
              << slot.name << " is written after bucket " << bucket;
        }
      }
    }
  }
  EXPECT_EQ(next, static_cast<int>(buckets.size()));
}

// Whatever cuts the buffer by buckets finds gradients and statistics apart.
TEST(Layout, RunningStatisticsComeLastInBucketsOfTheirOwn) {
  const Graph graph =
      build_model(testing::small_resnet(), testing::small_image_io(), 2, Purpose::kTraining);
  PlanOptions options;
  options.lanes = 8;
  options.bucket_mib = 0.05;
  const Plan plan =
      make_plan(graph, nullptr, options, [](const Graph&, const Op&) { return size_t{0}; });
  int statistics = 0;
  for (const ParameterSlot& slot : plan.layout.slots) {
    const bool statistic = slot.running_momentum > 0;
    statistics += statistic;
    EXPECT_EQ(statistic, slot.name.find(".running_") != std::string::npos) << slot.name;
    EXPECT_EQ(statistic, slot.offset >= plan.layout.statistics_begin) << slot.name;
  }
  EXPECT_EQ(statistics, 2 * 21);  // 19 norms and those of two projections
  ASSERT_LT(plan.gradient_buckets(), plan.buckets.size());
  EXPECT_GT(plan.gradient_buckets(), 4u);
  EXPECT_EQ(plan.buckets[plan.gradient_buckets()].begin, plan.layout.statistics_begin);
  EXPECT_EQ(plan.buckets[plan.gradient_buckets() - 1].end, plan.layout.statistics_begin);
  EXPECT_EQ(plan.buckets.back().end, plan.layout.elements);
  int next = 0;
  for (const auto& ready : plan.training.buckets_after_op) {
    for (const int bucket : ready) EXPECT_EQ(bucket, next++);
  }
  EXPECT_EQ(next, static_cast<int>(plan.buckets.size()));
}

// The forward pass waits for a bucket before it reads it, and begins the backward pass with all.
TEST(Layout, BucketsAreGatheredBeforeTheyAreRead) {
  const Graph graph = build_model(testing::small_gpt(), {}, 2, Purpose::kTraining);
  const ParameterLayout layout = make_layout(graph, 2);
  const auto buckets = make_buckets(layout.elements, 2, 512);
  const auto schedule = gather_schedule(graph, layout, buckets);
  ASSERT_EQ(schedule.size(), graph.ops.size());
  std::vector<int> times(buckets.size(), 0);
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    for (int bucket : schedule[op]) {
      EXPECT_LT(op, graph.forward_ops);
      ++times[static_cast<size_t>(bucket)];
    }
    for (size_t i = 0; i < layout.slots.size(); ++i) {
      const ParameterSlot& slot = layout.slots[i];
      const auto& inputs = graph.ops[op].inputs;
      if (std::find(inputs.begin(), inputs.end(), graph.parameters[i]) == inputs.end()) continue;
      for (size_t b = 0; b < buckets.size(); ++b) {
        if (slot.offset < buckets[b].end && slot.offset + slot.elements > buckets[b].begin) {
          EXPECT_EQ(times[b], 1) << graph.ops[op].name << " reads " << slot.name;
        }
      }
    }
  }
  EXPECT_EQ(times, std::vector<int>(buckets.size(), 1));
}

}  // namespace
}  // namespace lockstep
