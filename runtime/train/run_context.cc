#include "runtime/train/run_context.h"

#include "runtime/base/error.h"

namespace lockstep {

void allocate_shared(NodeMemory& node, const Plan& plan) {
  node.allocate(plan.row_bytes(kGradientsRow),
                plan.shares_parameters() ? plan.row_bytes(kParametersRow) : 0);
}

RunMemory allocate_run(Backend& backend, const Plan& plan, const NodeMemory* node, int rank) {
  const auto take = [&](const char* row, Backend::Place place = Backend::Place::kDevice) {
    const size_t bytes = plan.row_bytes(row);
    return bytes == 0 ? nullptr : backend.allocate(bytes, row, place);
  };
  const auto take_host = [&](const char* row) {
    return std::span(take(row, Backend::Place::kHost), plan.row_bytes(row));
  };
  const auto take_snapshot = [&](const char* row) {
    const std::span<std::byte> bytes = take_host(row);
    return std::span(reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float));
  };
  const auto take_floats = [&](const char* row) { return reinterpret_cast<float*>(take(row)); };
  backend.reserve(plan.device_bytes() - plan.row_bytes(kGraphsRow));
  backend.plan_recordings(plan.row_bytes(kGraphsRow));
  RunMemory memory;
  memory.parameters = plan.shares_parameters() ? node->common() : take(kParametersRow);
  memory.gathered = plan.shards_parameters ? take(kGatheredRow) : memory.parameters;
  memory.masters = take_floats(kMastersRow);
  memory.gradients =
      node != nullptr ? reinterpret_cast<float*>(node->own()) : take_floats(kGradientsRow);
  memory.gradient_sums = take_floats(kGradientSumsRow);
  memory.moments = take(kMomentsRow);
  memory.arena = take(kArenaRow);
  memory.constants = take(kConstantsRow);
  memory.staging = take_floats(kStagingRow);
  memory.residuals = take(kResidualsRow);
  memory.factors = take_floats(kFactorsRow);
  memory.muon = take(kMuonRow);
  if (rank == 0) memory.weights_snapshot = take_snapshot(kWeightsSnapshotRow);
  memory.moments_snapshot = take_host(kMomentsSnapshotRow);
  memory.train_batches = take_host(kTrainBatchesRow);
  memory.eval_batches = take_host(kEvalBatchesRow);
  memory.eval_scores = take_host(kEvalScoresRow);
  memory.device_batches = take(kDeviceBatchesRow);
  const size_t allocated =
      backend.allocated_bytes() + (node != nullptr ? node->allocated_bytes() : 0);
  const size_t planned = plan.memory_bytes() - plan.row_bytes(kDatasetRow) -
                         plan.row_bytes(kGraphsRow) -
                         (rank == 0 ? 0 : plan.row_bytes(kWeightsSnapshotRow));
  LOCKSTEP_CHECK(allocated == planned, "{} bytes are allocated, {} planned", allocated, planned);
  return memory;
}

}  // namespace lockstep
