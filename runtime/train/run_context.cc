#include "runtime/train/run_context.h"

#include "runtime/base/error.h"

namespace lockstep::train {

void allocate_shared(collectives::NodeMemory& node, const plan::Plan& plan) {
  const size_t gradients = plan.memory.row_bytes(plan::RowKind::kGradients);
  if (!plan.sharding.shares_parameters()) return node.allocate(gradients, 0);
  const auto bytes = static_cast<int64_t>(size_of(plan.layout.compute));
  std::vector<collectives::Range> written;
  for (const collectives::Range& bucket : plan.layout.all_buckets()) {
    const collectives::Range mine = collectives::part_of(bucket, node.index(), node.count());
    written.push_back({mine.begin * bytes, mine.end * bytes});
  }
  node.allocate(gradients, plan.memory.row_bytes(plan::RowKind::kParameters), written);
}

RunMemory allocate_run(exec::Backend& backend,
                       const plan::Plan& plan,
                       const collectives::NodeMemory* node,
                       int rank) {
  const auto take = [&](plan::RowKind row,
                        exec::Backend::Place place = exec::Backend::Place::kDevice) {
    const size_t bytes = plan.memory.row_bytes(row);
    return bytes == 0 ? nullptr : backend.allocate(bytes, plan::name_of(row), place);
  };
  const auto take_host = [&](plan::RowKind row) {
    return std::span(take(row, exec::Backend::Place::kHost), plan.memory.row_bytes(row));
  };
  const auto take_snapshot = [&](plan::RowKind row) {
    const std::span<std::byte> bytes = take_host(row);
    return std::span(reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float));
  };
  const auto take_floats = [&](plan::RowKind row) { return reinterpret_cast<float*>(take(row)); };
  backend.reserve(plan.memory.device_bytes() - plan.memory.row_bytes(plan::RowKind::kGraphs));
  backend.plan_recordings(plan.memory.row_bytes(plan::RowKind::kGraphs));
  RunMemory memory;
  memory.parameters =
      plan.sharding.shares_parameters() ? node->common() : take(plan::RowKind::kParameters);
  memory.gathered =
      plan.sharding.shards_parameters() ? take(plan::RowKind::kGathered) : memory.parameters;
  memory.masters = take_floats(plan::RowKind::kMasters);
  memory.gradients = node != nullptr ? reinterpret_cast<float*>(node->own())
                                     : take_floats(plan::RowKind::kGradients);
  memory.gradient_sums = take_floats(plan::RowKind::kGradientSums);
  memory.moments = take(plan::RowKind::kMoments);
  memory.arena = take(plan::RowKind::kArena);
  memory.constants = take(plan::RowKind::kConstants);
  memory.staging = take_floats(plan::RowKind::kStaging);
  memory.gradient_rows = take(plan::RowKind::kGradientRows);
  memory.residuals = take(plan::RowKind::kResiduals);
  memory.factors = take_floats(plan::RowKind::kFactors);
  memory.muon = take(plan::RowKind::kMuon);
  memory.factored_sums = take(plan::RowKind::kFactoredSums);
  memory.factored_averages = take_host(plan::RowKind::kFactoredAverages).data();
  if (rank == 0) memory.weights_snapshot = take_snapshot(plan::RowKind::kWeightsSnapshot);
  memory.moments_snapshot = take_host(plan::RowKind::kMomentsSnapshot);
  memory.train_batches = take_host(plan::RowKind::kTrainBatches);
  memory.eval_batches = take_host(plan::RowKind::kEvalBatches);
  memory.eval_scores = take_host(plan::RowKind::kEvalScores);
  memory.device_batches = take(plan::RowKind::kDeviceBatches);
  memory.sums = take(plan::RowKind::kSums);
  const size_t allocated =
      backend.allocated_bytes() + (node != nullptr ? node->allocated_bytes() : 0);
  const size_t planned = plan.memory.total_bytes() -
                         plan.memory.row_bytes(plan::RowKind::kDataset) -
                         plan.memory.row_bytes(plan::RowKind::kGraphs) -
                         (rank == 0 ? 0 : plan.memory.row_bytes(plan::RowKind::kWeightsSnapshot));
  LOCKSTEP_CHECK(allocated == planned, "{} bytes are allocated, {} planned", allocated, planned);
  return memory;
}

}  // namespace lockstep::train
