#include "runtime/plan/recorded_graphs.h"

#include <algorithm>

#include "runtime/plan/plan_parts.h"

namespace lockstep::plan {
namespace {

constexpr size_t kNodeBytes = 16 * 1024;
// Means over a network's ops; tests compare the sums with recorded steps.
constexpr size_t kNodesOfOp = 3;        // many have one kernel, some gradients up to ten
constexpr size_t kNodesOfLane = 8;      // its constants and results
constexpr size_t kNodesOfExchange = 8;  // marks, NCCL, rounding and sums
constexpr size_t kNodesOfSum = 4;       // of a bucket: its squares
constexpr size_t kNodesOfMatrix = 16;   // PowerSGD
constexpr size_t kNodesOfMuon = 80;     // of a matrix: its iteration
constexpr size_t kNodesOfFactored = 4;  // of a matrix that Adafactor factors: sums, directions
constexpr size_t kNodesOfUpdate = 16;

// The nodes of a step's parts.
struct Nodes {
  size_t of_lane;      // without its passes of sums
  size_t of_exchange;  // of all buckets, and of what is gathered at once
  size_t of_gathers;   // of what a forward pass gathers
  size_t of_sums;      // of all buckets
};

// Those of the rank that has the most, for one length of samples.
size_t nodes_by_lane(const Plan& plan, const Nodes& nodes) {
  const bool residuals = plan.sharding.residual_groups > 0;
  const size_t buckets = plan.layout.buckets.size();
  size_t most = 0;
  for (int rank = 0; rank < plan.sharding.topology.ranks(); ++rank) {
    const std::vector<int> patterns = recorded_lanes(plan, rank);
    const collectives::SumSchedule schedule = plan.sharding.shares().schedule(rank);
    size_t sum = nodes.of_exchange + nodes.of_gathers + nodes.of_sums;
    for (size_t lane = 0; lane < patterns.size(); ++lane) {
      if (patterns[lane] != static_cast<int>(lane)) continue;
      size_t passes = residuals ? 1 : 0;
      for (const collectives::SumSchedule::Pass& pass : schedule[lane].passes)
        passes += residuals ? pass.terms.size() : 1;
      sum += nodes.of_lane + passes * buckets;
    }
    most = std::max(most, sum);
  }
  return most;
}

}  // namespace

std::vector<int> recorded_lanes(const Plan& plan, int rank) {
  const bool gathers =
      plan.sharding.topology.ranks() > 1 && !plan.programs.training.gathers.empty();
  return plan.sharding.lane_patterns(rank, gathers);
}

size_t recorded_steps(size_t lengths, size_t lanes) {
  constexpr size_t kMax = 16;  // each one takes memory of the device's driver
  size_t count = 1;
  for (size_t lane = 0; lane < lanes && count <= kMax; ++lane) count *= lengths;
  return count > kMax ? 0 : count;
}

size_t recorded_bytes(const graph::Graph& training, const Plan& plan, size_t lengths) {
  const ProgramPlan& program = plan.programs.training;
  const ShardingPlan& sharding = plan.sharding;
  const auto lanes = static_cast<size_t>(sharding.shares().most());
  const size_t levels = sharding.topology.ranks() == 1 ? 0 : sharding.topology.groups_of(0).size();
  const size_t buckets = plan.layout.buckets.size();
  const size_t at_once =
      plan.traffic.sum_gathers.rounded.size() + plan.traffic.sum_gathers.floats.size();
  Nodes nodes = {.of_lane = kNodesOfOp * training.ops.size() + kNodesOfLane,
                 .of_exchange = (buckets + at_once) * levels * kNodesOfExchange,
                 .of_gathers = program.gathers.size() * levels * kNodesOfExchange,
                 .of_sums = kNodesOfSum * buckets};
  if (plan.traffic.power_sgd)
    nodes.of_lane += plan.traffic.power_sgd->matrices.size() * kNodesOfMatrix;
  size_t of_update = kNodesOfUpdate + plan.layout.slots.size();
  if (plan.traffic.muon) of_update += plan.traffic.muon->matrices.size() * kNodesOfMuon;
  if (plan.traffic.adafactor)
    of_update += plan.traffic.adafactor->tensors.size() * kNodesOfFactored;
  if (sharding.records_lanes())
    return (lengths * nodes_by_lane(plan, nodes) + of_update) * kNodeBytes;
  const size_t exchanges = sharding.shards_gradients() ? lanes : 1;
  const size_t of_step = lanes * (nodes.of_lane + buckets) + exchanges * nodes.of_exchange +
                         (program.gathers_each_run ? lanes : 1) * nodes.of_gathers + nodes.of_sums;
  return (recorded_steps(lengths, lanes) * of_step + of_update) * kNodeBytes;
}

}  // namespace lockstep::plan
