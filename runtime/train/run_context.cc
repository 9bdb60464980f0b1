#include "runtime/train/run_context.h"

#include "runtime/base/error.h"

namespace lockstep {

void allocate_shared(NodeMemory& node, const Plan& plan) {
  node.allocate(
      plan.memory.row_bytes(RowKind::kGradients),
      plan.sharding.shares_parameters() ? plan.memory.row_bytes(RowKind::kParameters) : 0);
}

RunMemory allocate_run(Backend& backend, const Plan& plan, const NodeMemory* node, int rank) {
  const auto take = [&](RowKind row, Backend::Place place = Backend::Place::kDevice) {
    const size_t bytes = plan.memory.row_bytes(row);
    return bytes == 0 ? nullptr : backend.allocate(bytes, name_of(row), place);
  };
  const auto take_host = [&](RowKind row) {
    return std::span(take(row, Backend::Place::kHost), plan.memory.row_bytes(row));
  };
  const auto take_snapshot = [&](RowKind row) {
    const std::span<std::byte> bytes = take_host(row);
    return std::span(reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float));
  };
  const auto take_floats = [&](RowKind row) { return reinterpret_cast<float*>(take(row)); };
  backend.reserve(plan.memory.device_bytes() - plan.memory.row_bytes(RowKind::kGraphs));
  backend.plan_recordings(plan.memory.row_bytes(RowKind::kGraphs));
  RunMemory memory;
  memory.parameters =
      plan.sharding.shares_parameters() ? node->common() : take(RowKind::kParameters);
  memory.gathered =
      plan.sharding.shards_parameters() ? take(RowKind::kGathered) : memory.parameters;
  memory.masters = take_floats(RowKind::kMasters);
  memory.gradients =
      node != nullptr ? reinterpret_cast<float*>(node->own()) : take_floats(RowKind::kGradients);
  memory.gradient_sums = take_floats(RowKind::kGradientSums);
  memory.moments = take(RowKind::kMoments);
  memory.arena = take(RowKind::kArena);
  memory.constants = take(RowKind::kConstants);
  memory.staging = take_floats(RowKind::kStaging);
  memory.residuals = take(RowKind::kResiduals);
  memory.factors = take_floats(RowKind::kFactors);
  memory.muon = take(RowKind::kMuon);
  if (rank == 0) memory.weights_snapshot = take_snapshot(RowKind::kWeightsSnapshot);
  memory.moments_snapshot = take_host(RowKind::kMomentsSnapshot);
  memory.train_batches = take_host(RowKind::kTrainBatches);
  memory.eval_batches = take_host(RowKind::kEvalBatches);
  memory.eval_scores = take_host(RowKind::kEvalScores);
  memory.device_batches = take(RowKind::kDeviceBatches);
  const size_t allocated =
      backend.allocated_bytes() + (node != nullptr ? node->allocated_bytes() : 0);
  const size_t planned = plan.memory.total_bytes() - plan.memory.row_bytes(RowKind::kDataset) -
                         plan.memory.row_bytes(RowKind::kGraphs) -
                         (rank == 0 ? 0 : plan.memory.row_bytes(RowKind::kWeightsSnapshot));
  LOCKSTEP_CHECK(allocated == planned, "{} bytes are allocated, {} planned", allocated, planned);
  return memory;
}

}  // namespace lockstep
