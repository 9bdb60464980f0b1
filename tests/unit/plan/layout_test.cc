// Catches: parameters that overlap in the flat buffer, rows of zeros without room, and a bucket
// declared complete before its last gradient is written; a long last exchange.
#include "runtime/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/graph/gradient_order.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/plan/plan_parts.h"
#include "tests/reference/models.h"

namespace lockstep::plan {
namespace {

// Rows of zeros follow its embedding, which is the head too: 29 rows have room for 64.
graph::Graph gpt_graph() {
  graph::GraphOptions options(graph::Purpose::kTraining);
  options.head_multiple = 64;
  return models::build_model(testing::small_gpt(), {}, 2, options);
}

int64_t end_of(const ParameterSlot& slot) { return slot.offset + slot.elements + slot.padding; }

TEST(Layout, SlotsAreDisjointAlignedAndWithinTheBuffer) {
  const graph::Graph graph = gpt_graph();
  const ParameterLayout layout = make_layout(graph, 8);
  std::vector<const ParameterSlot*> slots;
  for (const ParameterSlot& slot : layout.slots) slots.push_back(&slot);
  std::sort(slots.begin(), slots.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
  int64_t end = 0, parameters = 0;
  for (const ParameterSlot* slot : slots) {
    EXPECT_GE(slot->offset, end);
    EXPECT_EQ(slot->offset % 16, 0);
    end = end_of(*slot);
    parameters += slot->elements;
  }
  EXPECT_LE(end, layout.elements);
  EXPECT_EQ(parameters, layout.parameters);
  int64_t padding = 0;
  for (const ParameterSlot* slot : slots) padding += slot->padding;
  EXPECT_EQ(padding, (64 - 29) * testing::small_gpt().width);
  int64_t created = 0;
  for (const TensorId id : graph.parameters) created += graph.shape(id).elements();
  EXPECT_EQ(parameters, created);
}

TEST(Layout, GradientsFinishInTheOrderOfTheBuffer) {
  const graph::Graph graph = gpt_graph();
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
  const graph::Graph graph = gpt_graph();
  ParameterLayout layout = make_layout(graph, 2);
  const auto buckets = layout.buckets = collectives::make_buckets({0, layout.elements}, 2, 512);
  ASSERT_GT(buckets.size(), 4u);
  const auto schedule = bucket_schedule(graph, layout);
  int next = 0;
  for (size_t op = 0; op < schedule.size(); ++op) {
    for (int bucket : schedule[op]) {
      EXPECT_EQ(bucket, next++);
      for (size_t i = 0; i < layout.slots.size(); ++i) {
        const ParameterSlot& slot = layout.slots[i];
        if (slot.offset >= buckets[static_cast<size_t>(bucket)].end ||
            end_of(slot) <= buckets[static_cast<size_t>(bucket)].begin)
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

// A table of several buckets, and small parameters that one bucket has room for: in both cases the
// last bucket that a step exchanges is short.
TEST(Layout, LastBucketsBecomeShorter) {
  constexpr int64_t kBucket = 2048;
  const graph::Graph gpt =
      models::build_model(testing::small_gpt(), {}, 2, graph::Purpose::kTraining);
  const graph::Graph resnet = models::build_model(
      testing::small_resnet(), testing::small_image_io(), 2, graph::Purpose::kTraining);
  for (const graph::Graph* graph : {&gpt, &resnet}) {
    const ParameterLayout even = make_layout(*graph, 2, kBucket);
    const ParameterLayout layout = make_layout(*graph, 2, kBucket, 1, /*short_end=*/true);
    int64_t end = 0, last = 0;
    for (const collectives::Range& bucket : layout.buckets) {
      EXPECT_EQ(bucket.begin, end);
      end = bucket.end;
      EXPECT_LE(bucket.size(), kBucket);
      if (bucket.begin >= layout.statistics_begin) continue;
      const int64_t left = layout.statistics_begin - bucket.begin;
      EXPECT_LE(bucket.size(), std::max(left / 2, kBucket / 8));
      last = bucket.size();
    }
    EXPECT_EQ(end, layout.elements);
    EXPECT_LE(last, kBucket / 8);
    EXPECT_LE(layout.gradient_buckets(), even.gradient_buckets() + 8);
    for (const ParameterSlot& slot : layout.slots) {
      const auto within = [&](const collectives::Range& block) {
        return block.begin <= slot.offset && slot.offset + slot.elements <= block.end;
      };
      EXPECT_EQ(std::ranges::count_if(layout.blocks, within), 1) << slot.name;
    }
    for (const collectives::Range& block : layout.blocks)
      EXPECT_EQ(std::ranges::count(layout.buckets, block.end, &collectives::Range::end), 1);
  }
}

// The exchange of a large table is hidden by products that follow its gradient.
TEST(Layout, WeightsFollowALargeTable) {
  graph::Graph graph = models::build_model(testing::small_gpt(), {}, 2, graph::Purpose::kTraining);
  const auto written = [](const graph::Graph& training) {
    std::vector<TensorId> ids;
    for (const graph::Op& op : training.ops)
      for (const TensorId id : op.outputs)
        if (id != kNoTensor) ids.push_back(id);
    std::ranges::sort(ids);
    return ids;
  };
  const auto table_comes_last = [](const graph::Graph& training) {
    const ParameterLayout layout = make_layout(training, 2, 2048);
    const auto last = std::ranges::max_element(layout.slots, {}, &ParameterSlot::offset);
    return last->name == "transformer.wte.weight" || last->name == "transformer.wpe.weight";
  };
  const graph::Graph before = graph;
  EXPECT_TRUE(table_comes_last(before));
  graph::postpone_weight_gradients(graph);
  EXPECT_FALSE(table_comes_last(graph));
  EXPECT_EQ(graph.ops.size(), before.ops.size() + 4);
  EXPECT_EQ(written(graph), written(before));
  for (size_t i = before.ops.size(); i < graph.ops.size(); ++i) {
    const graph::Op& op = graph.ops[i];
    EXPECT_EQ(op.kind, graph::OpKind::kLinearBackward);
    EXPECT_EQ(op.outputs[graph::LinearBackwardOut::kDX], kNoTensor);
    EXPECT_TRUE(op.name.find("h.0.") != std::string::npos) << op.name;
  }
  // A small one is sent with the rest.
  graph::Graph resnet = models::build_model(
      testing::small_resnet(), testing::small_image_io(), 2, graph::Purpose::kTraining);
  const size_t ops = resnet.ops.size();
  graph::postpone_weight_gradients(resnet);
  EXPECT_EQ(resnet.ops.size(), ops);
}

// What has no gradient lies behind what has, and takes no room of gradients, moments and sums.
TEST(Layout, FrozenParametersLieApart) {
  graph::GraphOptions graph_options(graph::Purpose::kTraining);
  graph_options.prepare_parameters = [](graph::Graph& graph) {
    for (const TensorId id : graph.parameters)
      graph[id].frozen =
          graph[id].name.find("layer") != std::string::npos && graph[id].running_momentum == 0;
  };
  const graph::Graph graph =
      models::build_model(testing::small_resnet(), testing::small_image_io(), 2, graph_options);
  for (const int stage : {0, 1, 2, 3}) {
    PlanOptions options;
    options.sharding.topology = collectives::Topology::flat(4);
    options.sharding.lanes = 8;
    options.bucket_mib = 0.05;
    options.sharding.zero_stage = stage;
    options.optimizer.moments = 2;
    options.optimizer.snapshot = true;
    const Plan plan = make_plan(
        {graph}, options, [](const graph::Graph&, const graph::Op&) { return size_t{0}; });
    const ParameterLayout& layout = plan.layout;
    int64_t frozen = 0;
    for (const ParameterSlot& slot : layout.slots) {
      EXPECT_EQ(slot.frozen, slot.offset >= layout.trained()) << slot.name;
      EXPECT_EQ(slot.running_momentum > 0 || slot.frozen, slot.offset >= layout.statistics_begin);
      if (slot.frozen) frozen += slot.elements;
    }
    EXPECT_GT(frozen, 0);
    EXPECT_EQ(layout.frozen_parameters, frozen);
    EXPECT_EQ(plan.layout.buckets.back().end, layout.trained());
    EXPECT_EQ(plan.layout.frozen_buckets.front().begin, layout.trained());
    EXPECT_EQ(plan.layout.frozen_buckets.back().end, layout.elements);
    const auto trained = static_cast<size_t>(layout.trained()) * sizeof(float),
               all = static_cast<size_t>(layout.elements) * sizeof(float);
    EXPECT_EQ(plan.memory.row_bytes(RowKind::kMoments), 2 * trained / (stage == 0 ? 1 : 4))
        << stage;
    EXPECT_EQ(plan.memory.row_bytes(RowKind::kParameters), all / (stage == 3 ? 4 : 1)) << stage;
    EXPECT_EQ(plan.memory.row_bytes(RowKind::kWeightsSnapshot), all);
    EXPECT_EQ(plan.memory.row_bytes(RowKind::kMomentsSnapshot), 2 * trained / 4);
    if (stage < 2) {
      EXPECT_EQ(plan.memory.row_bytes(RowKind::kGradients) % trained, 0u);
    }
    // In stage 3 the blocks of frozen parameters are gathered as the others are.
    std::vector<bool> gathered(plan.layout.all_buckets().size());
    for (const collectives::GatherItem& item : plan.programs.training.gathers)
      gathered[static_cast<size_t>(item.bucket)] = true;
    for (size_t b = plan.layout.buckets.size(); b < gathered.size(); ++b)
      EXPECT_EQ(gathered[b], stage == 3) << b;
  }
}

// Whatever cuts the buffer by buckets finds gradients and statistics apart.
TEST(Layout, RunningStatisticsComeLastInBucketsOfTheirOwn) {
  const graph::Graph graph = models::build_model(
      testing::small_resnet(), testing::small_image_io(), 2, graph::Purpose::kTraining);
  PlanOptions options;
  options.sharding.lanes = 8;
  options.bucket_mib = 0.05;
  const Plan plan =
      make_plan({graph}, options, [](const graph::Graph&, const graph::Op&) { return size_t{0}; });
  int statistics = 0;
  for (const ParameterSlot& slot : plan.layout.slots) {
    const bool statistic = slot.running_momentum > 0;
    statistics += statistic;
    EXPECT_EQ(statistic, slot.name.find(".running_") != std::string::npos) << slot.name;
    EXPECT_EQ(statistic, slot.offset >= plan.layout.statistics_begin) << slot.name;
  }
  EXPECT_EQ(statistics, 2 * 21);  // 19 norms and those of two projections
  ASSERT_LT(plan.layout.gradient_buckets(), plan.layout.buckets.size());
  EXPECT_GT(plan.layout.gradient_buckets(), 4u);
  EXPECT_EQ(plan.layout.buckets[plan.layout.gradient_buckets()].begin,
            plan.layout.statistics_begin);
  EXPECT_EQ(plan.layout.buckets[plan.layout.gradient_buckets() - 1].end,
            plan.layout.statistics_begin);
  EXPECT_EQ(plan.layout.buckets.back().end, plan.layout.elements);
  int next = 0;
  for (const auto& ready : plan.programs.training.buckets_after_op) {
    for (const int bucket : ready) EXPECT_EQ(bucket, next++);
  }
  EXPECT_EQ(next, static_cast<int>(plan.layout.buckets.size()));
}

TEST(Layout, NoParameterLiesAcrossABlocksBorder) {
  const graph::Graph graph = gpt_graph();
  for (const int64_t most : {int64_t{1}, int64_t{3000}, int64_t{20'000}, int64_t{1} << 40}) {
    const ParameterLayout layout = make_layout(graph, 4, most);
    const std::vector<collectives::Range>& buckets = layout.buckets;
    int64_t end = 0;
    for (const collectives::Range& bucket : buckets) {
      EXPECT_EQ(bucket.begin, end);
      EXPECT_EQ(bucket.size() % (4 * collectives::kSliceAlignment), 0);
      EXPECT_LE(bucket.size(), std::max(most, 4 * collectives::kSliceAlignment));
      end = bucket.end;
    }
    EXPECT_EQ(end, layout.elements);
    // Its chunks of squares are the same ones wherever it lies.
    for (const ParameterSlot& slot : layout.slots)
      EXPECT_EQ(slot.offset % kSquaresChunk, 0) << slot.name;
    end = 0;
    for (const collectives::Range& block : layout.blocks) {
      EXPECT_EQ(block.begin, end);
      end = block.end;
      const auto begins = [&](const collectives::Range& bucket) {
        return bucket.begin == block.begin;
      };
      EXPECT_TRUE(std::any_of(buckets.begin(), buckets.end(), begins));
      for (const ParameterSlot& slot : layout.slots) {
        const int64_t slot_end = end_of(slot);
        if (slot.offset < block.end && slot_end > block.begin) {
          EXPECT_GE(slot.offset, block.begin) << slot.name;
          EXPECT_LE(slot_end, block.end) << slot.name;
        }
      }
    }
    EXPECT_EQ(end, layout.elements);
  }
}

// Catches: a gradient that is written where another one still waits to be summed.
TEST(Layout, BucketsShareMemoryOnlyOnceTheyAreSummed) {
  for (const auto& [graph, bucket_mib] :
       {std::pair(gpt_graph(), 0.004),
        std::pair(
            models::build_model(
                testing::small_resnet(), testing::small_image_io(), 2, graph::Purpose::kTraining),
            0.03)}) {
    PlanOptions options;
    options.sharding.topology = collectives::Topology::flat(2);
    options.sharding.zero_stage = 2;
    options.sharding.lanes = 8;
    options.bucket_mib = bucket_mib;
    const Plan plan = make_plan(
        {graph}, options, [](const graph::Graph&, const graph::Op&) { return size_t{0}; });
    EXPECT_LT(plan.layout.gradient_elements, plan.layout.elements * 2 / 3);
    EXPECT_EQ(plan.memory.row_bytes(RowKind::kGradients),
              static_cast<size_t>(plan.layout.gradient_elements) * 4);
    EXPECT_EQ(plan.memory.row_bytes(RowKind::kGradientSums),
              static_cast<size_t>(plan.layout.elements) / 2 * 4 * 3);
    const size_t count = plan.layout.buckets.size();
    std::vector<bool> begun(count, false), summed(count, false);
    const auto memory = [&](size_t bucket) {
      return collectives::Range{
          plan.layout.bucket_offsets[bucket],
          plan.layout.bucket_offsets[bucket] + plan.layout.buckets[bucket].size()};
    };
    for (size_t op = 0; op < graph.ops.size(); ++op) {
      for (const int bucket : plan.programs.training.buckets_begun_by_op[op]) {
        const collectives::Range mine = memory(static_cast<size_t>(bucket));
        EXPECT_GE(mine.begin, 0);
        EXPECT_LE(mine.end, plan.layout.gradient_elements);
        for (size_t other = 0; other < count; ++other) {
          if (!begun[other] || summed[other]) continue;
          const collectives::Range taken = memory(other);
          EXPECT_TRUE(mine.end <= taken.begin || taken.end <= mine.begin) << bucket << ' ' << other;
        }
        begun[static_cast<size_t>(bucket)] = true;
      }
      for (size_t p = 0; p < plan.layout.slots.size(); ++p) {
        const auto& outputs = graph.ops[op].outputs;
        const ParameterSlot& slot = plan.layout.slots[p];
        if (std::count(outputs.begin(), outputs.end(), graph[graph.parameters[p]].gradient) == 0)
          continue;
        for (size_t bucket = 0; bucket < count; ++bucket) {
          const collectives::Range& range = plan.layout.buckets[bucket];
          if (slot.offset >= range.end || end_of(slot) <= range.begin) continue;
          EXPECT_TRUE(begun[bucket] && !summed[bucket]) << slot.name;
          EXPECT_EQ(slot.gradient_offset - slot.offset,
                    plan.layout.bucket_offsets[bucket] - range.begin);
        }
      }
      for (const int bucket : plan.programs.training.buckets_after_op[op]) {
        if (bucket >= collectives::kExchangesInFlight)
          summed[static_cast<size_t>(bucket - collectives::kExchangesInFlight)] = true;
      }
    }
    for (size_t bucket = 0; bucket < count; ++bucket) {
      int64_t covered = 0;
      for (const collectives::Range& gap : plan.layout.bucket_gaps[bucket]) covered += gap.size();
      for (const ParameterSlot& slot : plan.layout.slots)
        covered += std::max<int64_t>(
            0,
            std::min(slot.offset + slot.elements, plan.layout.buckets[bucket].end) -
                std::max(slot.offset, plan.layout.buckets[bucket].begin));
      EXPECT_EQ(covered, plan.layout.buckets[bucket].size()) << bucket;
    }
  }
}

// The forward pass waits for a bucket before it reads it, and begins the backward pass with all.
TEST(Layout, BucketsAreGatheredBeforeTheyAreRead) {
  const graph::Graph graph = gpt_graph();
  ParameterLayout layout = make_layout(graph, 2);
  const auto buckets = layout.buckets = collectives::make_buckets({0, layout.elements}, 2, 512);
  layout.compute = DType::kBF16;
  ProgramPlan program;
  gather_in_place(graph, layout, program);
  ASSERT_EQ(program.gathered_before_op.size(), graph.ops.size());
  ASSERT_EQ(program.gathers.size(), buckets.size());
  std::vector<int> times(buckets.size(), 0);
  size_t next = 0;
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    for (; next < program.gathered_before_op[op]; ++next) {
      const auto bucket = static_cast<size_t>(program.gathers[next].bucket);
      EXPECT_EQ(program.gathers[next].offset, static_cast<size_t>(buckets[bucket].begin) * 2);
      EXPECT_LT(op, graph.forward_ops);
      ++times[bucket];
    }
    for (size_t i = 0; i < layout.slots.size(); ++i) {
      const ParameterSlot& slot = layout.slots[i];
      const auto& inputs = graph.ops[op].inputs;
      if (std::find(inputs.begin(), inputs.end(), graph.parameters[i]) == inputs.end()) continue;
      for (size_t b = 0; b < buckets.size(); ++b) {
        if (slot.offset < buckets[b].end && end_of(slot) > buckets[b].begin) {
          EXPECT_EQ(times[b], 1) << graph.ops[op].name << " reads " << slot.name;
        }
      }
    }
  }
  EXPECT_EQ(times, std::vector<int>(buckets.size(), 1));
}

// Catches: a parameter that is read where another one has come to lie, or may be on its way to.
TEST(Layout, BlocksAreThereWhileTheyAreRead) {
  for (const auto& [graph, most] :
       {std::pair(gpt_graph(), 1024),
        std::pair(
            models::build_model(
                testing::small_resnet(), testing::small_image_io(), 2, graph::Purpose::kTraining),
            8192),
        std::pair(
            models::build_model(
                testing::small_resnet(), testing::small_image_io(), 2, graph::Purpose::kEvaluation),
            8192)}) {
    ParameterLayout layout = make_layout(
        graph.purpose == graph::Purpose::kTraining
            ? graph
            : models::build_model(
                  testing::small_resnet(), testing::small_image_io(), 2, graph::Purpose::kTraining),
        4,
        most);
    const std::vector<collectives::Range>& buckets = layout.buckets;
    constexpr size_t kBytes = 2;
    layout.compute = DType::kBF16;
    ProgramPlan program;
    gather_blocks(graph, layout, program);
    EXPECT_TRUE(program.gathers_each_run);
    EXPECT_LT(program.gathered_bytes, static_cast<size_t>(layout.elements) * kBytes * 3 / 4);
    // What lies where: the flat element of each in memory, -1 while something is on its way.
    std::vector<int64_t> memory(program.gathered_bytes / kBytes, -1);
    const auto put = [&](const collectives::GatherItem& item, bool there) {
      const collectives::Range& bucket = buckets[static_cast<size_t>(item.bucket)];
      for (int64_t i = 0; i < bucket.size(); ++i)
        memory.at(item.offset / kBytes + static_cast<size_t>(i)) = there ? bucket.begin + i : -1;
    };
    std::vector<size_t> placed(layout.slots.size(), ~size_t{0});
    size_t begun = 0, there = 0;
    int turn = 0;
    for (size_t op = 0; op < graph.ops.size(); ++op) {
      const size_t needed = program.gathered_before_op[op];
      if (needed > there) turn = program.gathers[needed - 1].turn + 1;
      for (; begun < program.gathers.size() && program.gathers[begun].turn <= turn; ++begun)
        put(program.gathers[begun], false);
      for (; there < needed; ++there) put(program.gathers[there], true);
      for (const PlacedParameter& parameter : program.placed_before_op[op])
        placed[parameter.parameter] = parameter.offset;
      for (size_t p = 0; p < layout.slots.size(); ++p) {
        const auto& inputs = graph.ops[op].inputs;
        if (std::find(inputs.begin(), inputs.end(), graph.parameters[p]) == inputs.end()) continue;
        const ParameterSlot& slot = layout.slots[p];
        for (int64_t i = 0; i < slot.elements; ++i)
          ASSERT_EQ(memory.at(placed[p] / kBytes + static_cast<size_t>(i)), slot.offset + i)
              << graph.ops[op].name << " reads " << slot.name;
      }
    }
    EXPECT_EQ(there, program.gathers.size());
  }
}

}  // namespace
}  // namespace lockstep::plan
