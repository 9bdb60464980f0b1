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
constexpr size_t kNodesOfUpdate = 16;

}  // namespace

size_t recorded_bytes(const graph::Graph& training, const Plan& plan, size_t recordings) {
  const ProgramPlan& program = plan.programs.training;
  const auto ranks = static_cast<size_t>(plan.sharding.topology.ranks());
  const size_t lanes = static_cast<size_t>(plan.sharding.lanes) / ranks;
  const size_t levels = ranks == 1 ? 0 : plan.sharding.topology.groups_of(0).size();
  const size_t buckets = plan.layout.buckets.size();
  const size_t reductions = buckets * (plan.sharding.shards_gradients() ? lanes : 1);
  const size_t gathers = program.gathers.size() * (program.gathers_each_run ? lanes : 1) +
                         plan.traffic.sum_gathers.rounded.size() +
                         plan.traffic.sum_gathers.floats.size();
  size_t nodes = lanes * (kNodesOfOp * training.ops.size() + kNodesOfLane);
  nodes += (reductions + gathers) * levels * kNodesOfExchange + (lanes + kNodesOfSum) * buckets;
  if (plan.traffic.power_sgd)
    nodes += lanes * plan.traffic.power_sgd->matrices.size() * kNodesOfMatrix;
  if (plan.traffic.muon) nodes += plan.traffic.muon->matrices.size() * kNodesOfMuon;
  return recordings * (nodes + kNodesOfUpdate + plan.layout.slots.size()) * kNodeBytes;
}

}  // namespace lockstep::plan
