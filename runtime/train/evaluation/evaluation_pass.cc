#include "runtime/train/evaluation/evaluation_pass.h"

#include <algorithm>

#include "runtime/base/threads.h"

namespace lockstep {
namespace {

LoaderOptions loader_options(const RunContext& context) {
  LoaderOptions options;
  options.geometry = context.geometry();
  options.training = false;
  if (context.config.eval.max_samples > 0)
    options.samples = std::min(context.config.eval.max_samples, context.data.eval->samples());
  options.ring_batches = context.eval_ring_batches;
  options.threads = choose_loader_threads(
      *context.data.eval, context.config.data.decode_threads, compute_threads());
  return options;
}

}  // namespace

EvaluationPass::EvaluationPass(const RunContext& context,
                               const RunMemory& memory,
                               BucketAllGather* gather)
    : context_(context),
      executors_({*context.evaluation, context.plan.evaluation},
                 context.length_buckets.evaluation,
                 context.plan.length_bucket_evaluation,
                 context.plan.layout,
                 context.backend,
                 {.arena = memory.arena,
                  .parameters = memory.gathered,
                  .gather = gather,
                  .constants = memory.constants}),
      loader_(*context.data.eval, loader_options(context), memory.eval_batches),
      stage_(context.training,
             context.backend,
             memory.device_batches,
             static_cast<size_t>(context.local_lanes())),
      lane_(context.backend.host_array<LaneContext>(1).front()),
      result_(context.backend.host_array<std::byte>(
          (*context.evaluation)[context.evaluation->result].bytes())) {}

int64_t EvaluationPass::samples() const {
  const int64_t max_samples = loader_options(context_).samples;  // negative: all
  return max_samples < 0 ? context_.data.eval->samples() : max_samples;
}

void EvaluationPass::run(const Visitor& visitor) {
  loader_.restart(0);
  const BatchGeometry geometry = context_.geometry();
  lane_.seed = context_.config.seed;
  int64_t first = 0;  // first sample of the step
  while (const LaneBatch* batches = loader_.next()) {
    for (size_t i = 0; i < static_cast<size_t>(context_.local_lanes()); ++i) {
      // If programs gather parameters, all ranks must run equally often.
      const bool empty = batches[i].valid_samples == 0;
      if (empty && !context_.plan.evaluation.gathers_each_run) continue;
      const LaneBatch batch = stage_.copy_lane(i, batches[i]);
      const int64_t rows = executors_.planned(batch.tokens).graph.loss_rows_per_sample;
      lane_.valid_rows = batch.valid_samples * rows;
      lane_.first_sample =
          first + (geometry.first_lane + static_cast<int64_t>(i) * geometry.lane_stride) *
                      geometry.lane_batch;
      executors_.of(batch.tokens)
          .run(lane_, batch.input, batch.target, nullptr, nullptr, result_.data(), prediction_);
      context_.backend.synchronize();
      if (!empty) visitor.lane_done(i, batches[i], rows);
    }
    visitor.step_done();
    first += geometry.global_batch();
  }
}

}  // namespace lockstep
