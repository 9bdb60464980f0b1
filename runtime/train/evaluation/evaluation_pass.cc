#include "runtime/train/evaluation/evaluation_pass.h"

#include <algorithm>

#include "collectives/gather/lane_gather.h"
#include "runtime/base/threads.h"

namespace lockstep::train {
namespace {

data::LoaderOptions loader_options(const RunContext& context) {
  data::LoaderOptions options;
  options.geometry = context.geometry();
  options.training = false;
  if (context.config.eval.max_samples > 0)
    options.samples = std::min(context.config.eval.max_samples, context.data.eval->samples());
  options.ring_batches = context.eval_ring_batches;
  options.threads = data::choose_loader_threads(
      *context.data.eval, context.config.data.decode_threads, compute_threads());
  return options;
}

}  // namespace

EvaluationPass::EvaluationPass(const RunContext& context,
                               const RunMemory& memory,
                               collectives::BucketAllGather* gather)
    : context_(context),
      executors_({*context.graphs.evaluation, context.plan.programs.evaluation},
                 context.graphs.length_bucket_evaluation,
                 context.plan.programs.length_bucket_evaluation,
                 context.plan.layout,
                 context.backend,
                 {.arena = memory.arena,
                  .parameters = memory.gathered,
                  .gather = gather,
                  .constants = memory.constants}),
      loader_(*context.data.eval, loader_options(context), memory.eval_batches),
      stage_(context.graphs.training,
             context.backend,
             memory.device_batches,
             static_cast<size_t>(context.local_lanes())),
      lane_(context.backend.host_array<graph::LaneContext>(1).front()),
      result_(context.backend.host_array<std::byte>(
          (*context.graphs.evaluation)[context.graphs.evaluation->result].bytes())) {}

int64_t EvaluationPass::samples() const {
  const int64_t max_samples = loader_options(context_).samples;  // negative: all
  return max_samples < 0 ? context_.data.eval->samples() : max_samples;
}

void EvaluationPass::run(const Visitor& visitor) {
  loader_.restart(0);
  const data::BatchGeometry geometry = context_.geometry();
  lane_.seed = context_.config.seed;
  // If programs gather parameters, all ranks must run equally often.
  const bool gathers = context_.plan.programs.evaluation.gathers_each_run;
  int64_t first = 0;  // first sample of the step
  while (const data::LaneBatch* batches = loader_.next()) {
    for (size_t i = 0; i < static_cast<size_t>(context_.local_lanes()); ++i) {
      const bool empty = batches[i].valid_samples == 0;
      if (empty && !gathers) continue;
      const data::LaneBatch batch = stage_.copy_lane(i, batches[i]);
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
    for (int turn = context_.local_lanes(); gathers && turn < context_.lane_shares().most(); ++turn)
      executors_.full_context().run_without_lane(nullptr);
    visitor.step_done();
    first += geometry.global_batch();
  }
}

void EvaluationPass::collect_parts(
    int64_t sample_elements,
    const Writer& write,
    const std::function<void(std::span<const float> samples)>& take) {
  const data::BatchGeometry geometry = context_.geometry();
  const auto lane_elements = static_cast<size_t>(geometry.lane_batch * sample_elements);
  const bool root = context_.communicator.rank() == 0;
  std::vector<float> step(lane_elements * static_cast<size_t>(geometry.lanes));
  collectives::LaneGather gather(context_.communicator,
                                 context_.lane_shares(),
                                 lane_elements * sizeof(float),
                                 reinterpret_cast<std::byte*>(step.data()));
  const auto values_of = [&](int lane) { return reinterpret_cast<float*>(gather.of(lane)); };
  auto wanted = static_cast<size_t>(samples() * sample_elements);
  int64_t begin = 0;  // the first sample of the step
  Visitor visitor;
  visitor.lane_done = [&](size_t local, const data::LaneBatch& batch, int64_t) {
    const int lane = context_.lanes()[static_cast<int>(local)];
    write(batch, begin + lane * geometry.lane_batch, {values_of(lane), lane_elements});
  };
  // Samples fill the lanes in order, so only the end of the last step is padding.
  visitor.step_done = [&] {
    gather.gather();
    begin += geometry.global_batch();
    for (int lane = 0; root && lane < geometry.lanes; ++lane) {
      const size_t count = std::min(lane_elements, wanted);
      take({values_of(lane), count});
      wanted -= count;
    }
  };
  run(visitor);
}

std::vector<float> EvaluationPass::collect(int64_t sample_elements, const Writer& write) {
  std::vector<float> all;
  if (context_.communicator.rank() == 0)
    all.reserve(static_cast<size_t>(samples() * sample_elements));
  collect_parts(sample_elements, write, [&](std::span<const float> samples) {
    all.insert(all.end(), samples.begin(), samples.end());
  });
  return all;
}

}  // namespace lockstep::train
