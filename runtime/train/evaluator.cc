#include "runtime/train/evaluator.h"

#include <algorithm>

#include "runtime/base/threads.h"

namespace lockstep {
namespace {

LoaderOptions loader_options(const RunParts& parts) {
  LoaderOptions options;
  options.geometry = parts.geometry();
  options.training = false;
  if (parts.config.eval.max_samples > 0)
    options.samples = std::min(parts.config.eval.max_samples, parts.data.eval->samples());
  options.ring_batches = parts.eval_ring_batches;
  options.threads =
      choose_loader_threads(*parts.data.eval, parts.config.data.decode_threads, compute_threads());
  return options;
}

}  // namespace

Evaluator::Evaluator(const RunParts& parts, const RunMemory& memory, Reducer& reducer)
    : parts_(parts),
      reducer_(reducer),
      executor_(*parts.evaluation,
                parts.plan.evaluation,
                parts.plan.layout,
                parts.backend,
                {memory.arena, memory.parameters}),
      loader_(*parts.data.eval, loader_options(parts), memory.eval_batches),
      stage_(*parts.evaluation,
             parts.backend,
             memory.device_batches,
             static_cast<size_t>(parts.local_lanes())),
      lane_(parts.backend.host_array<LaneContext>(1).front()),
      statistics_(parts.backend.host_array<LaneStatistics>(1).front()),
      sums_(static_cast<size_t>(parts.local_lanes())) {}

Evaluation Evaluator::run() {
  loader_.restart(0);
  std::fill(sums_.begin(), sums_.end(), LaneStatistics{});
  while (const LaneBatch* batches = loader_.next()) {
    for (size_t i = 0; i < sums_.size(); ++i) {
      lane_.valid_rows = batches[i].valid_samples * parts_.evaluation->loss_rows_per_sample;
      if (lane_.valid_rows == 0) continue;
      const LaneBatch batch = stage_.place(i, batches[i]);
      executor_.run(lane_,
                    batch.input,
                    batch.target,
                    nullptr,
                    nullptr,
                    reinterpret_cast<std::byte*>(&statistics_));
      parts_.backend.synchronize();
      for (int k = 0; k < kStatisticCount; ++k) sums_[i].values[k] += statistics_.values[k];
    }
  }
  const StepTotals totals = reducer_.sum_statistics(sums_, 0);
  const double count = std::max(totals.valid_count, 1.0);
  const int64_t few = loader_options(parts_).samples;  // negative: all
  return {totals.loss_sum / count,
          few < 0 ? parts_.data.eval->samples() : few,
          totals.correct_count / count};
}

}  // namespace lockstep
