#include "runtime/plan/traffic_plan.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/ops/embedding.h"

#include <algorithm>

#include "collectives/layout/exchange_levels.h"
#include "runtime/base/error.h"
#include "runtime/plan/plan_parts.h"

namespace lockstep::plan {
namespace {

// The trained matrices; no running statistics.
std::vector<collectives::FlatMatrix> matrices_of(const ParameterLayout& layout) {
  std::vector<collectives::FlatMatrix> matrices;
  for (const ParameterSlot& slot : layout.slots) {
    if (slot.is_trained_matrix())
      matrices.push_back({slot.offset, slot.shape[0], slot.elements / slot.shape[0], slot.padding});
  }
  std::ranges::sort(matrices, {}, &collectives::FlatMatrix::offset);
  return matrices;
}

collectives::RowLayout rows_of(const graph::Graph& training, const Plan& plan) {
  collectives::RowLayout layout;
  for (const graph::RowGradient& gradient : graph::row_gradients(training)) {
    const auto parameter = std::ranges::find(training.parameters, gradient.table);
    const Shape& table = training.shape(gradient.table);
    layout.append(
        {.offset =
             plan.layout.slots[static_cast<size_t>(parameter - training.parameters.begin())].offset,
         .table_rows = table[0],
         .columns = table[1],
         .lane_rows = training.shape(gradient.ids).elements(),
         .dtype = training[gradient.rows].dtype},
        plan.sharding.lanes);
  }
  return layout;
}

// Bytes of a lane's or a rank's sums, before they are cut into parts.
int64_t sum_bytes(const Plan& plan, const TrafficPlan& traffic) {
  if (traffic.power_sgd) {
    const collectives::Topology& topology = plan.sharding.topology;
    return static_cast<int64_t>(sizeof(float)) * (traffic.power_sgd->lefts(topology).padded() +
                                                  traffic.power_sgd->rights(topology).padded());
  }
  const int64_t statistics = plan.layout.trained() - plan.layout.statistics_begin;
  return static_cast<int64_t>(size_of(traffic.wire)) * plan.layout.statistics_begin +
         static_cast<int64_t>(sizeof(float)) * statistics;
}

// The most elements in buckets that one op completes: those of a large head, for instance.
int64_t most_at_once(const Plan& plan) {
  int64_t most = 0;
  for (const std::vector<int>& buckets : plan.programs.training.buckets_after_op) {
    int64_t elements = 0;
    for (const int bucket : buckets)
      elements += plan.layout.buckets[static_cast<size_t>(bucket)].size();
    most = std::max(most, elements);
  }
  return most;
}

// How many sums the library gets from a rank.
int sums_of_library(const collectives::LaneShares& shares) {
  return shares.order == collectives::LaneOrder::kEachSummed ? shares.most() : 1;
}

// Bytes of a lane that all other lanes need.
int64_t gathered_lane_bytes(const graph::Graph& graph) {
  size_t bytes = 0;
  for (const graph::Op& op : graph.ops)
    if (op.kind == graph::OpKind::kGatherLanes)
      bytes += graph[op.inputs[graph::GatherLanesIn::kLane]].bytes();
  return static_cast<int64_t>(bytes);
}

// Bytes that the rank sends in a step which sends the most.
void count_bytes(const graph::Graph& graph, const Plan& plan, TrafficPlan& traffic) {
  const std::vector<collectives::Range> buckets = plan.layout.all_buckets();
  const auto elements = [&](const std::vector<collectives::GatherItem>& items) {
    int64_t sum = 0;
    for (const collectives::GatherItem& item : items)
      sum += buckets[static_cast<size_t>(item.bucket)].size();
    return sum;
  };
  const collectives::Topology& topology = plan.sharding.topology;
  const ProgramPlan& training = plan.programs.training;
  const int64_t gradient_bytes = sum_bytes(plan, traffic);
  const collectives::LaneShares shares = plan.sharding.shares();
  const collectives::LaneShares of_sums =
      traffic.power_sgd ? traffic.power_sgd->lefts(topology).shares() : shares;
  const int gathers = training.gathers_each_run ? shares.most() : 1;
  const DType gathered_type = plan.sharding.shards_optimizer() ? plan.layout.compute : traffic.wire;
  const int64_t gathered =
      (traffic.power_sgd ? gradient_bytes : 0) +
      static_cast<int64_t>(sizeof(float)) * elements(traffic.sum_gathers.floats) +
      static_cast<int64_t>(size_of(traffic.wire)) * elements(traffic.sum_gathers.rounded) +
      static_cast<int64_t>(size_of(gathered_type)) * gathers * elements(training.gathers);
  // On each level a rank sends, of each of its sums, all but one of `count` parts, and gathers
  // receive the same amount back.
  std::vector<std::vector<int>> sums = {std::vector<int>(1, sums_of_library(shares))};
  if (!plan.sharding.library_order) sums = collectives::offered_sums(topology, of_sums);
  for (const std::vector<int>& offered : sums) {
    int64_t wire_bytes = 0, network_bytes = 0, parts = 1;
    const std::vector<collectives::RankGroup> groups = topology.groups_of(0);
    for (size_t level = 0; level < groups.size(); ++level) {
      const int count = groups[level].count;
      const int64_t bytes = offered[level] * gradient_bytes + gathered;
      const int64_t sent = bytes / parts / count * (count - 1);
      if (level > 0 || !topology.shares_memory) wire_bytes += sent;
      network_bytes = topology.nodes > 1 ? sent : 0;  // of the last level
      parts *= count;
    }
    traffic.wire_bytes = std::max(traffic.wire_bytes, wire_bytes);
    traffic.network_bytes = std::max(traffic.network_bytes, network_bytes);
  }
  // To each other rank. All ranks gather rows, matrices, averages and values of lanes, whatever
  // their nodes.
  const int ranks = topology.ranks(), others = ranks - topology.per_node;
  const int64_t sent =
      (ranks - 1) * shares.most() *
          (static_cast<int64_t>(traffic.rows.lane_bytes()) + gathered_lane_bytes(graph)) +
      (traffic.muon ? traffic.muon->sent_bytes() : 0) +
      (traffic.adafactor ? traffic.adafactor->sent_bytes() : 0);
  traffic.wire_bytes += sent;
  if (ranks > 1) traffic.network_bytes += sent / (ranks - 1) * others;
}

}  // namespace

TrafficPlan plan_traffic(const graph::Graph& training,
                         const Plan& plan,
                         const PlanOptions& options) {
  const ShardingPlan& sharding = plan.sharding;
  const ParameterLayout& layout = plan.layout;
  TrafficPlan traffic;
  traffic.sum_gathers = plan.traffic.sum_gathers;
  traffic.wire = options.wire;
  LOCKSTEP_CHECK(!sharding.replicated_sums() ||
                 (sharding.topology.nodes == 1 && options.power_sgd == 0));
  if (options.power_sgd > 0) {
    traffic.power_sgd = collectives::power_sgd_layout(
        matrices_of(layout), layout.trained(), options.power_sgd, sharding.residual_groups);
  } else {
    using enum collectives::InFlightLimit;
    const bool gathers_sums = !sharding.shards_optimizer() && !sharding.replicated_sums();
    const bool gathers_later = gathers_sums && !plan.programs.training.gathers.empty();
    traffic.exchanged_elements =
        collectives::exchanged_elements(layout.buckets,
                                        gathers_sums                  ? kGathersFollow
                                        : sharding.shards_gradients() ? kSavesMemory
                                                                      : kUsual,
                                        gathers_later ? most_at_once(plan) : 0);
    if (sharding.topology.ranks() > 1)
      traffic.staging_elements =
          sharding.library_order
              ? traffic.exchanged_elements
              : collectives::staging_elements(
                    traffic.exchanged_elements, sharding.topology, sharding.shares(), traffic.wire);
  }
  if (options.evaluation_only) return traffic;
  traffic.rows = rows_of(training, plan);
  if (const OptimizerConfig* optimizer = options.optimizer.config) {
    if (const auto* muon = std::get_if<MuonConfig>(&optimizer->kind))
      traffic.muon =
          make_muon_layout(*muon, layout, sharding, options.optimizer.newton_schulz_bytes);
    if (std::holds_alternative<AdafactorConfig>(optimizer->kind))
      traffic.adafactor = make_adafactor_layout(layout, sharding, options.device.has_value());
  }
  count_bytes(training, plan, traffic);
  return traffic;
}

}  // namespace lockstep::plan
