#include "runtime/train/evaluation/evaluation_pass.h"

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

EvaluationPass::EvaluationPass(const RunParts& parts,
                               const RunMemory& memory,
                               BucketAllGather* gather)
    : parts_(parts),
      executors_({*parts.evaluation, parts.plan.evaluation},
                 parts.shorter.evaluation,
                 parts.plan.shorter_evaluation,
                 parts.plan.layout,
                 parts.backend,
                 {.arena = memory.arena,
                  .parameters = memory.gathered,
                  .gather = gather,
                  .constants = memory.constants}),
      loader_(*parts.data.eval, loader_options(parts), memory.eval_batches),
      stage_(parts.training,
             parts.backend,
             memory.device_batches,
             static_cast<size_t>(parts.local_lanes())),
      lane_(parts.backend.host_array<LaneContext>(1).front()),
      result_(parts.backend.host_array<std::byte>(
          (*parts.evaluation)[parts.evaluation->result].bytes())) {}

int64_t EvaluationPass::samples() const {
  const int64_t few = loader_options(parts_).samples;  // negative: all
  return few < 0 ? parts_.data.eval->samples() : few;
}

void EvaluationPass::run(const Visitor& visitor) {
  loader_.restart(0);
  const BatchGeometry geometry = parts_.geometry();
  lane_.seed = parts_.config.seed;
  int64_t first = 0;  // sample of the step
  while (const LaneBatch* batches = loader_.next()) {
    for (size_t i = 0; i < static_cast<size_t>(parts_.local_lanes()); ++i) {
      // Those that gather parameters for each other run equally often.
      const bool empty = batches[i].valid_samples == 0;
      if (empty && !parts_.plan.evaluation.gathers_each_run) continue;
      const LaneBatch batch = stage_.place(i, batches[i]);
      const int64_t rows = executors_.planned(batch.tokens).graph.loss_rows_per_sample;
      lane_.valid_rows = batch.valid_samples * rows;
      lane_.first_sample =
          first + (geometry.first_lane + static_cast<int64_t>(i) * geometry.lane_stride) *
                      geometry.lane_batch;
      executors_.of(batch.tokens)
          .run(lane_, batch.input, batch.target, nullptr, nullptr, result_.data(), prediction_);
      parts_.backend.synchronize();
      if (!empty) visitor.lane_done(i, batches[i], rows);
    }
    visitor.step_done();
    first += geometry.global_batch();
  }
}

}  // namespace lockstep
