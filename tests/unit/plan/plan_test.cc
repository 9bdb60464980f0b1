// Catches: memory rows that do not follow ranks, lanes and optimizer, recordings that are not
// shared, and a flop count that is off.
#include "runtime/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "tests/reference/models.h"

namespace lockstep::plan {
namespace {

size_t none(const graph::Graph&, const graph::Op&) { return 0; }

Plan plan_for(int ranks, int lanes, int moments) {
  const graph::Graph graph =
      models::build_model(testing::small_gpt(), {}, 2, graph::Purpose::kTraining);
  PlanOptions options;
  options.sharding.topology = collectives::Topology::flat(ranks);
  options.sharding.lanes = lanes;
  options.optimizer.moments = moments;
  options.bucket_mib = 0.01;
  return make_plan({graph}, options, none);
}

TEST(Plan, RowsFollowRanksAndLanes) {
  const Plan one = plan_for(1, 8, 2), four = plan_for(4, 8, 2);
  const size_t flat = static_cast<size_t>(one.layout.elements) * 4;
  EXPECT_EQ(one.layout.elements, four.layout.elements);  // the layout does not depend on the ranks
  EXPECT_EQ(one.memory.row_bytes(RowKind::kParameters), flat);
  EXPECT_EQ(one.memory.row_bytes(RowKind::kGradients), 4 * flat);
  EXPECT_EQ(four.memory.row_bytes(RowKind::kGradients), 2 * flat);
  EXPECT_EQ(one.memory.row_bytes(RowKind::kMoments), 2 * flat);
  EXPECT_EQ(four.memory.row_bytes(RowKind::kMoments), flat / 2);
  EXPECT_EQ(one.memory.row_bytes(RowKind::kStaging), 0u);
  EXPECT_EQ(four.memory.row_bytes(RowKind::kStaging),
            4 * static_cast<size_t>(collectives::exchanged_elements(
                    four.layout.buckets, collectives::InFlightLimit::kUsual)));
  EXPECT_EQ(one.traffic.wire_bytes, 0);
  EXPECT_EQ(four.traffic.wire_bytes, static_cast<int64_t>(2 * flat / 4 * 3));
  size_t sum = 0;
  for (const MemoryRow& row : one.memory.rows) sum += row.bytes;
  EXPECT_EQ(one.memory.total_bytes(), sum);
}

// A device adds more lanes at once if that takes little of its memory, and counts the buffers.
TEST(Plan, MoreLanesAreAddedAtOnceWhereMemoryIsPlentiful) {
  const graph::Graph graph =
      models::build_model(testing::small_gpt(), {}, 2, graph::Purpose::kTraining);
  PlanOptions options;
  options.sharding.lanes = 16;
  options.optimizer.moments = 2;
  options.bucket_mib = 0.01;
  const auto planned = [&](size_t library_bytes, bool adds_pairs) {
    options.device = PlanOptions::Device{.library_bytes = library_bytes, .adds_pairs = adds_pairs};
    return make_plan({graph}, options, none);
  };
  const std::map<int, size_t> buffers = {{2, 5}, {4, 6}, {8, 9}};
  const auto buffer = static_cast<size_t>(planned(0, true).layout.elements) * sizeof(float);
  std::set<int> widths;
  for (const size_t library_buffers : {0, 8, 32, 128}) {
    const size_t two = planned(library_buffers * buffer, true).memory.device_bytes();
    const Plan plan = planned(library_buffers * buffer, false);
    const int width = plan.sharding.lanes_at_once;
    EXPECT_EQ(plan.memory.row_bytes(RowKind::kGradients), buffers.at(width) * buffer);
    EXPECT_EQ(width, 4 * buffer <= two / 12 ? 8 : buffer <= two / 12 ? 4 : 2);
    widths.insert(width);
  }
  EXPECT_TRUE(widths.contains(4) && widths.contains(8));
  EXPECT_EQ(planned(128 * buffer, true).sharding.lanes_at_once, 2);
  options.sharding.residual_groups = 8;
  EXPECT_EQ(planned(128 * buffer, false).sharding.lanes_at_once, 2);
  options.device.reset();
  EXPECT_EQ(make_plan({graph}, options, none).sharding.lanes_at_once, 2);
}

// Lanes share recordings, so that many lanes take little more of them than few. Whole steps are
// recorded if exchanges of lanes overlap, or none if there are too many choices of lengths.
TEST(Plan, RecordingsGrowWithTheLogarithmOfTheLanes) {
  const graph::Graph graph =
      models::build_model(testing::small_gpt(), {}, 1, graph::Purpose::kTraining);
  const auto graphs = [&](int lanes, int ranks, int stage, size_t lengths) {
    PlanOptions options;
    options.sharding.topology = collectives::Topology::flat(ranks);
    options.sharding.lanes = lanes;
    options.sharding.zero_stage = stage;
    options.device = PlanOptions::Device{.recorded_lengths = lengths};
    return make_plan({graph}, options, none).memory.row_bytes(RowKind::kGraphs);
  };
  const size_t one = graphs(1, 1, 1, 1);
  EXPECT_GT(graphs(8, 1, 1, 1), 3 * one);
  EXPECT_LT(graphs(128, 1, 1, 1), 12 * one);
  EXPECT_LT(graphs(128, 1, 1, 3), 3 * graphs(128, 1, 1, 1));
  EXPECT_GT(graphs(128, 1, 1, 3), 2 * graphs(128, 1, 1, 1));
  EXPECT_GT(graphs(128, 4, 2, 1), 20 * one);
  EXPECT_LT(graphs(128, 4, 2, 3), one);
  EXPECT_EQ(graphs(128, 4, 2, 0), 0u);
}

// What four ranks of two lanes each have and send in each ZeRO stage.
TEST(Plan, RowsAndTrafficFollowTheZeroStage) {
  const graph::Graph graph =
      models::build_model(testing::small_gpt(), {}, 2, graph::Purpose::kTraining);
  const auto plan_of = [&](int stage, const collectives::Topology& topology) {
    PlanOptions options;
    options.sharding.topology = topology;
    options.sharding.zero_stage = stage;
    options.sharding.lanes = 8;
    options.optimizer.moments = 2;
    options.bucket_mib = 0.004;
    return make_plan({graph}, options, none);
  };
  const std::vector<Plan> plans = {plan_of(0, collectives::Topology::flat(4)),
                                   plan_of(1, collectives::Topology::flat(4)),
                                   plan_of(2, collectives::Topology::flat(4)),
                                   plan_of(3, collectives::Topology::flat(4))};
  const auto flat = static_cast<size_t>(plans[0].layout.elements) * 4;
  for (const Plan& plan : plans) EXPECT_EQ(plan.layout.buckets, plans[0].layout.buckets);
  const auto row = [&](int stage, RowKind kind) {
    return plans[static_cast<size_t>(stage)].memory.row_bytes(kind);
  };
  for (int stage = 0; stage < 3; ++stage) {
    EXPECT_EQ(row(stage, RowKind::kParameters), flat) << stage;
    EXPECT_EQ(row(stage, RowKind::kGathered), 0u) << stage;
  }
  EXPECT_EQ(row(3, RowKind::kParameters), flat / 4);
  EXPECT_EQ(row(3, RowKind::kGathered), plans[3].programs.training.gathered_bytes);
  EXPECT_LT(row(3, RowKind::kGathered), flat);
  EXPECT_EQ(row(0, RowKind::kMoments), 2 * flat);
  for (int stage = 1; stage < 4; ++stage)
    EXPECT_EQ(row(stage, RowKind::kMoments), 2 * flat / 4) << stage;
  for (int stage = 0; stage < 2; ++stage) {
    EXPECT_EQ(row(stage, RowKind::kGradients), 2 * flat) << stage;
    EXPECT_EQ(row(stage, RowKind::kGradientSums), 0u) << stage;
  }
  for (int stage = 2; stage < 4; ++stage) {
    EXPECT_LT(row(stage, RowKind::kGradients), flat) << stage;
    EXPECT_EQ(row(stage, RowKind::kGradientSums), 2 * flat / 4) << stage;
  }

  // Three quarters go to others: of the gradients and of what is brought back. From stage 2 on the
  // gradients of each lane, in stage 3 the parameters for each lane's passes.
  const auto sent = [&](size_t bytes) { return static_cast<int64_t>(bytes / 4 * 3); };
  EXPECT_EQ(plans[0].traffic.wire_bytes, sent(flat + flat));
  EXPECT_EQ(plans[1].traffic.wire_bytes, sent(flat + flat));
  EXPECT_EQ(plans[2].traffic.wire_bytes, sent(2 * flat + flat));
  size_t gathered = 0;
  for (const collectives::GatherItem& item : plans[3].programs.training.gathers)
    gathered +=
        static_cast<size_t>(plans[3].layout.buckets[static_cast<size_t>(item.bucket)].size()) * 4;
  EXPECT_GT(gathered, flat);
  EXPECT_LT(gathered, 3 * flat);
  EXPECT_EQ(plans[3].traffic.wire_bytes, sent(2 * flat + 2 * gathered));
  // Two nodes of two ranks: half stays within the node, of the rest half goes to the other one.
  EXPECT_EQ(plan_of(3, {2, 2}).traffic.network_bytes,
            static_cast<int64_t>((2 * flat + 2 * gathered) / 2 / 2));
}

// Beside the gradients, a rank sends the values of its two lanes to the three others: with a loss
// of pairs, the vectors and the sums of their softmaxes.
TEST(Plan, CountsWhatLanesSendEachOther) {
  const BertConfig bert = testing::small_bert(BertConfig::Task::kEmbeddings);
  graph::GraphOptions training(graph::Purpose::kTraining);
  training.lanes = 8;
  const graph::Graph graph = models::build_model(bert, {.texts = 2}, 3, training);
  PlanOptions options;
  options.sharding.topology = {1, 4};
  options.sharding.lanes = 8;
  const Plan plan = make_plan({graph}, options, none);
  const int64_t vectors = 2 * 3 * bert.width, sums = 2 * 3, most_lanes = 2;
  const int64_t rows = static_cast<int64_t>(plan.traffic.rows.lane_bytes());
  EXPECT_EQ(plan.traffic.wire_bytes,
            2 * plan.layout.elements * 4 / 4 * 3 +
                3 * most_lanes * (rows + (vectors + sums) * static_cast<int64_t>(sizeof(float))));
}

// Two bytes for a gradient, four for a parameter that comes back; the memory is the same.
TEST(Plan, CountsWhatTravelsRounded) {
  const graph::Graph graph =
      models::build_model(testing::small_gpt(), {}, 2, graph::Purpose::kTraining);
  PlanOptions options;
  options.sharding.topology = {1, 4};
  options.sharding.lanes = 8;
  const size_t staging = make_plan({graph}, options, none).memory.row_bytes(RowKind::kStaging);
  options.wire = DType::kBF16;
  const Plan plan = make_plan({graph}, options, none);
  EXPECT_EQ(plan.traffic.wire_bytes, plan.layout.elements * (2 + 4) / 4 * 3);
  EXPECT_EQ(plan.memory.row_bytes(RowKind::kStaging), staging);
  // In stage 0 the sums come back, in two bytes too.
  options.sharding.zero_stage = 0;
  EXPECT_EQ(make_plan({graph}, options, none).traffic.wire_bytes,
            plan.layout.elements * (2 + 2) / 4 * 3);
}

// Catches: sums that no rank gets; an op that reads parameters before their update; sums that
// arrive in the next step although their update needs all of them, or a device records the step.
TEST(Plan, SumsAreGatheredBeforeTheirParametersAreRead) {
  for (const graph::Graph& graph :
       {models::build_model(testing::small_gpt(), {}, 2, graph::Purpose::kTraining),
        models::build_model(
            testing::small_resnet(), testing::small_image_io(), 2, graph::Purpose::kTraining)}) {
    for (const DType wire : {DType::kF32, DType::kBF16}) {
      PlanOptions options;
      options.sharding = {.topology = {2, 2}, .zero_stage = 0, .lanes = 4};
      options.bucket_mib = 0.01;
      options.wire = wire;
      const Plan all_at_once = make_plan({graph}, options, none);
      EXPECT_TRUE(all_at_once.programs.training.gathers.empty());
      options.optimizer.by_bucket = true;
      options.device.emplace();
      EXPECT_TRUE(make_plan({graph}, options, none).programs.training.gathers.empty());
      options.device.reset();
      const Plan plan = make_plan({graph}, options, none);
      EXPECT_EQ(plan.traffic.wire_bytes, all_at_once.traffic.wire_bytes);
      EXPECT_EQ(plan.memory.total_bytes(), all_at_once.memory.total_bytes());

      const ProgramPlan& program = plan.programs.training;
      EXPECT_GT(program.gathers.size(), plan.layout.buckets.size() / 3);
      std::vector<int> times(plan.layout.buckets.size());
      const auto count = [&](const collectives::GatherItem& item) {
        ++times[static_cast<size_t>(item.bucket)];
      };
      std::ranges::for_each(plan.traffic.sum_gathers.rounded, count);
      std::ranges::for_each(plan.traffic.sum_gathers.floats, count);
      size_t next = 0;
      for (size_t op = 0; op < graph.ops.size(); ++op) {
        for (; next < program.gathered_before_op[op]; ++next) {
          EXPECT_LT(op, graph.forward_ops);
          count(program.gathers[next]);
        }
        for (size_t p = 0; p < graph.parameters.size(); ++p) {
          if (std::ranges::find(graph.ops[op].inputs, graph.parameters[p]) ==
              graph.ops[op].inputs.end())
            continue;
          for (size_t b = 0; b < times.size(); ++b) {
            if (overlap(plan.layout.slots[p], plan.layout.buckets[b])) {
              EXPECT_EQ(times[b], 1) << graph.ops[op].name;
            }
          }
        }
      }
      EXPECT_EQ(times, std::vector<int>(times.size(), 1));
    }
  }
}

// The square root of the gradients and of 128 KiB.
TEST(Plan, BucketsGrowWithTheRootOfTheModel) {
  const auto graph_of = [](int64_t width) {
    GptConfig config = testing::small_gpt();
    config.width = width;
    return models::build_model(config, {}, 2, graph::Purpose::kTraining);
  };
  const graph::Graph small = graph_of(64), large = graph_of(1024);
  double elements = 0;
  for (const TensorId parameter : large.parameters)
    elements += static_cast<double>(large.shape(parameter).elements());
  const double mib = usual_bucket_mib(large, DType::kF32);
  EXPECT_NEAR(mib, std::sqrt(elements * 4 / 8) / 1024, 0.06);
  EXPECT_NEAR(usual_bucket_mib(large, DType::kBF16), mib * std::sqrt(2), 0.1);
  EXPECT_LT(usual_bucket_mib(small, DType::kF32), mib);
  EXPECT_GE(usual_bucket_mib(small, DType::kF32), 0.1);
}

// In stage 0 too ranks that share memory send nothing; each has its own parameters.
TEST(Plan, SumsGoEverywhereInSharedMemory) {
  const graph::Graph graph =
      models::build_model(testing::small_gpt(), {}, 2, graph::Purpose::kTraining);
  PlanOptions options;
  options.sharding.topology = {1, 4};
  options.sharding.lanes = 8;
  options.sharding.zero_stage = 0;
  const Plan sent = make_plan({graph}, options, none);
  EXPECT_FALSE(sent.sharding.replicated_sums());
  EXPECT_EQ(sent.traffic.sum_gathers.floats.size(), sent.layout.buckets.size());
  options.sharding.topology.shares_memory = true;
  const Plan plan = make_plan({graph}, options, none);
  EXPECT_TRUE(plan.sharding.replicated_sums());
  EXPECT_TRUE(plan.traffic.sum_gathers.floats.empty());
  EXPECT_EQ(plan.traffic.wire_bytes, 0);
  EXPECT_EQ(plan.memory.host_bytes(4), 4 * plan.memory.total_bytes());
  EXPECT_EQ(plan.memory.row_bytes(RowKind::kStaging), 0u);
}

// Weights that do not lie on the host as a whole in fp32 are copied there while they are begun,
// unless memory that only steps use has room for them.
TEST(Plan, CountsTheCopyOfTheWeights) {
  struct Case {
    int stage = 1;
    DType compute = DType::kBF16;
    int ranks = 2;
    bool separate_memory = false, evaluation_only = false, frozen = false;
    int width = 64;  // the arena of wide ones is smaller than the weights
  };
  const auto copied = [&](const Case& of) {
    PlanOptions options;
    options.sharding.topology = {1, of.ranks};
    options.sharding.lanes = 2;
    options.sharding.zero_stage = of.stage;
    options.evaluation_only = of.evaluation_only;
    if (of.separate_memory) options.device.emplace();
    graph::GraphOptions graph_options(graph::Purpose::kTraining);
    graph_options.prepare_parameters = [&](graph::Graph& graph) {
      graph[graph.parameters.front()].frozen = of.frozen;
    };
    GptConfig config = testing::small_gpt();
    config.width = of.width;
    graph::Graph graph = models::build_model(config, {}, 2, graph_options);
    for (const TensorId parameter : graph.parameters) graph[parameter].dtype = of.compute;
    const Plan plan = make_plan({graph}, options, none);
    const size_t rows = plan.memory.total_bytes() - plan.memory.device_bytes();
    const auto ranks = static_cast<size_t>(of.ranks);
    EXPECT_EQ(plan.memory.host_bytes(of.ranks), ranks * (rows + plan.memory.weights_copy_bytes));
    const bool told =
        memory_table(plan.memory).find("temporarily on the host") != std::string::npos;
    EXPECT_EQ(told, plan.memory.weights_copy_bytes > 0);
    return plan.memory.weights_copy_bytes / static_cast<size_t>(plan.layout.elements);
  };
  EXPECT_EQ(copied({.compute = DType::kF32}), 0u);
  EXPECT_EQ(copied({.stage = 3, .compute = DType::kF32}), 4u);
  EXPECT_EQ(copied({.compute = DType::kF32, .separate_memory = true}), 4u);
  EXPECT_EQ(copied({.separate_memory = true}), 6u);
  EXPECT_EQ(copied({.ranks = 1}), 0u);              // in the master weights
  EXPECT_EQ(copied({.stage = 0}), 0u);              // of every rank
  EXPECT_EQ(copied({}), 0u);                        // in the gradients
  EXPECT_EQ(copied({.stage = 2}), 4u);              // not of some buckets alone
  EXPECT_EQ(copied({.stage = 2, .width = 8}), 0u);  // in the arena
  EXPECT_EQ(copied({.frozen = true}), 4u);
  EXPECT_EQ(copied({.frozen = true, .width = 8}), 0u);
  EXPECT_EQ(copied({.evaluation_only = true}), 4u);
}

// A rank with four of eight lanes: what rounding takes of four lanes, of three sums of them, and of
// half of the sum over two ranks; with two groups, of its own and of that half.
TEST(Plan, CountsResiduals) {
  const graph::Graph graph =
      models::build_model(testing::small_gpt(), {}, 2, graph::Purpose::kTraining);
  PlanOptions options;
  options.sharding.lanes = 8;
  options.sharding.topology = {1, 2};
  options.wire = DType::kBF16;
  const auto halves = [&](int groups) {
    options.sharding.residual_groups = groups;
    const Plan plan = make_plan({graph}, options, none);
    return plan.memory.row_bytes(RowKind::kResiduals) / static_cast<size_t>(plan.layout.elements);
  };
  EXPECT_EQ(halves(0), 0u);
  EXPECT_EQ(halves(8), 2u * 7 + 1);
  EXPECT_EQ(halves(2), 2u + 1);
}

// Two sums of factors and of what is no matrix travel, there and back, in place of the gradients.
TEST(Plan, CountsFactors) {
  const graph::Graph graph =
      models::build_model(testing::small_gpt(), {}, 2, graph::Purpose::kTraining);
  PlanOptions options;
  options.sharding.lanes = 8;
  options.sharding.topology = {1, 4};
  options.sharding.zero_stage = 0;
  const Plan whole = make_plan({graph}, options, none);
  options.sharding.residual_groups = 8;
  options.power_sgd = 1;
  const Plan plan = make_plan({graph}, options, none);
  ASSERT_TRUE(plan.traffic.power_sgd);
  EXPECT_GT(plan.traffic.power_sgd->matrices.size(), 0u);
  const int64_t factors = collectives::padded_elements(plan.traffic.power_sgd->left_elements, 8) +
                          collectives::padded_elements(plan.traffic.power_sgd->right_elements, 8);
  EXPECT_EQ(plan.traffic.wire_bytes, 2 * factors * 4 / 4 * 3);
  EXPECT_LT(plan.traffic.wire_bytes, whole.traffic.wire_bytes / 2);
  EXPECT_EQ(plan.memory.row_bytes(RowKind::kStaging), 0u);
  EXPECT_EQ(plan.memory.row_bytes(RowKind::kResiduals),
            static_cast<size_t>(2 * plan.layout.elements * 4));
  // Groups of one lane need no binary counter.
  EXPECT_EQ(plan.memory.row_bytes(RowKind::kGradients),
            whole.memory.row_bytes(RowKind::kGradients) / 2);
}

// Four nodes of two ranks: half of the gradients cross the node's border of a rank, and of that
// three quarters go to other nodes; the parameters come back the same way.
TEST(Plan, CountsWhatLeavesTheNode) {
  const graph::Graph graph =
      models::build_model(testing::small_gpt(), {}, 2, graph::Purpose::kTraining);
  PlanOptions options;
  options.sharding.topology = {4, 2};
  options.sharding.lanes = 8;
  const Plan plan = make_plan({graph}, options, none);
  const int64_t flat = plan.layout.elements * 4;
  EXPECT_EQ(plan.sharding.topology.ranks(), 8);
  EXPECT_EQ(plan.traffic.wire_bytes, 2 * (flat / 2 + flat / 2 / 4 * 3));
  EXPECT_EQ(plan.traffic.network_bytes, 2 * flat / 2 / 4 * 3);
}

TEST(Plan, CountsTheFlopsOfAnMlp) {
  MlpConfig config;
  config.hidden = {20};
  config.outputs = 3;
  const graph::Graph graph =
      models::build_model(config, {.features = 10, .classes = 3}, 7, graph::Purpose::kEvaluation);
  const ProgramPlan plan = plan_program(graph, none);
  const int64_t products = 2 * 7 * (10 * 20 + 20 * 3);
  EXPECT_GE(plan.flops, products);
  EXPECT_LT(plan.flops, products + 8 * 7 * 3 + 1);
}

}  // namespace
}  // namespace lockstep::plan
