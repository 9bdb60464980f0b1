#include "runtime/train/step/step_gradients.h"

#include "runtime/plan/recorded_graphs.h"
#include "runtime/train/step/mixup.h"

namespace lockstep::train {
namespace {

size_t recordings_of(const plan::ShardingPlan& sharding, size_t lengths, size_t lanes) {
  return sharding.records_lanes() ? lengths * lanes : plan::recorded_steps(lengths, lanes);
}

// Whether work is recorded. Ranks count the operations between them as they queue them, not as they
// replay them. If lanes have several lengths, a rank may replay what another one queues for the
// first time. So work that has such operations is not recorded then.
bool records(size_t lengths, int ranks, bool communicates) {
  return !communicates || lengths == 1 || ranks == 1;
}

}  // namespace

StepGradients::StepGradients(const RunContext& context,
                             const RunMemory& memory,
                             const StepBatches& batches,
                             StepExchange& exchange,
                             const StepClock& clock)
    : context_(context),
      batches_(batches),
      exchange_(exchange),
      clock_(clock),
      executors_({context.graphs.training, context.plan.programs.training},
                 context.graphs.length_bucket_training,
                 context.plan.programs.length_bucket_training,
                 context.plan.layout,
                 context.backend,
                 {.arena = memory.arena,
                  .parameters = memory.gathered,
                  .gather = &exchange.forward_gather(),
                  .constants = memory.constants},
                 context.graphs.joint_training ? &*context.graphs.joint_training : nullptr),
      recordings_(recordings_of(
          context.plan.sharding, executors_.size(), static_cast<size_t>(context.local_lanes()))),
      lanes_(context.backend.host_array<graph::LaneContext>(
          static_cast<size_t>(context.local_lanes()))),
      statistics_(context.backend.host_array<collectives::LaneStatistics>(lanes_.size())),
      lane_runs_(lanes_.size()) {
  for (auto& recording : recordings_) recording = context.backend.repeated_work();
  if (context.plan.sharding.records_lanes())
    patterns_ = plan::recorded_lanes(context.plan, context.communicator.rank());
}

void StepGradients::begin_step(int64_t done, double loss_scale) {
  const TrainConfig& train = context_.config.train;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const data::LaneBatch& batch = batches_.taken()[i];
    graph::LaneContext& lane = lanes_[i] = {};
    lane.seed = context_.config.seed;
    lane.step = static_cast<uint32_t>(done);
    lane.lane = static_cast<uint32_t>(context_.lanes()[static_cast<int>(i)]);
    lane.valid_rows =
        batch.valid_samples * executors_.planned(batch.tokens).graph.loss_rows_per_sample;
    lane.first_sample = lane.lane * context_.geometry().lane_batch;
    lane.gradient_scale = static_cast<float>(
        loss_scale /
        static_cast<double>(train.global_batch * context_.graphs.training.loss_rows_per_sample));
    if (train.mixup > 0) lane.mix = draw_mix(train.mixup, lane.seed, lane.step, lane.lane);
  }
}

void StepGradients::run(StepChecks& checks) {
  compute(checks.gathered(), /*recorded=*/!checks.checks_transfers());
}

void StepGradients::queue(GatheredChecksums* checked) { compute(checked, /*recorded=*/false); }

void StepGradients::compute(GatheredChecksums* checked, bool recorded) {
  if (!patterns_.empty()) {
    for (size_t lane = 0; lane < lanes_.size(); ++lane) compute_lane(lane, checked, recorded);
    return;
  }
  const auto work = [&] {
    // The last update's parameters are gathered while the forward pass already runs.
    exchange_.start_gather(checked);
    runs_together() ? run_lanes_together() : run_lanes();
    reduce(checked);
  };
  recorded = recorded && records(executors_.size(), context_.communicator.size(), true);
  exec::RepeatedWork* const recording = recorded ? step_recording() : nullptr;
  recording != nullptr ? recording->run(work) : work();
}

// What lanes of a pattern do not have in common is copied before and after the recorded work. The
// last lane is the only one of its pattern, and records all that follows it.
void StepGradients::compute_lane(size_t lane, GatheredChecksums* checked, bool recorded) {
  collectives::GradientExchange& exchange = exchange_.gradients();
  const bool last = lane + 1 == lanes_.size();
  const data::LaneBatch batch = batches_.copy_current(lane);
  context_.backend.begin_lane(lanes_[lane]);
  const size_t length = executors_.fit(batch.tokens);
  exec::Executor& executor = executors_.of(batch.tokens);
  const auto end_lane = [&] {
    executor.copy_results(&exchange, reinterpret_cast<std::byte*>(&statistics_[lane]));
    exchange.end_lane();
  };
  const auto work = [&] {
    if (lane == 0) exchange_.start_gather(checked);
    {
      const metrics::Timeline::Span span = clock_.span("forward and backward");
      executor.run_ops(
          lanes_[lane], batch.input, batch.target, exchange.lane_gradients(), &exchange);
    }
    if (!last) return;
    end_lane();
    reduce(checked);
  };
  const size_t pattern = static_cast<size_t>(patterns_[lane]);
  const bool communicates = lane == 0 || last;
  if (recorded && records(executors_.size(), context_.communicator.size(), communicates)) {
    recordings_[pattern * executors_.size() + length]->run(std::cref(work));
  } else {
    work();
  }
  if (!last) end_lane();
}

void StepGradients::reduce(GatheredChecksums* checked) {
  const metrics::Timeline::Span span = clock_.span("reduce gradients");
  exchange_.reduce(checked);
}

// The recording of a step with these lengths of the lanes, whose indices are the digits of its
// number, the first lane's leading. Null if there is none.
exec::RepeatedWork* StepGradients::step_recording() {
  if (recordings_.empty()) return nullptr;
  size_t number = 0;
  for (const data::LaneBatch& batch : batches_.taken())
    number = number * executors_.size() + executors_.fit(batch.tokens);
  return recordings_[number].get();
}

bool StepGradients::runs_together() const {
  return context_.plan.sharding.interleaved_lanes || context_.plan.programs.training.lanes > 1;
}

void StepGradients::run_lanes() {
  collectives::GradientExchange& exchange = exchange_.gradients();
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const metrics::Timeline::Span span = clock_.span("forward and backward");
    const data::LaneBatch& batch = batches_.taken()[i];
    executors_.of(batch.tokens)
        .run(lanes_[i],
             batch.input,
             batch.target,
             exchange.lane_gradients(),
             &exchange,
             reinterpret_cast<std::byte*>(&statistics_[i]));
    exchange.end_lane();
  }
  for (int turn = exchange.lanes().count; turn < exchange.turns(); ++turn) {
    executors_.full_context().run_without_lane(&exchange);
    exchange.end_lane();
  }
}

void StepGradients::run_lanes_together() {
  const metrics::Timeline::Span span = clock_.span("forward and backward");
  for (size_t i = 0; i < lanes_.size(); ++i)
    lane_runs_[i] = {&lanes_[i],
                     batches_.taken()[i].input,
                     batches_.taken()[i].target,
                     reinterpret_cast<std::byte*>(&statistics_[i])};
  const auto pass = static_cast<size_t>(context_.plan.programs.training.lanes);
  for (size_t first = 0; first < lane_runs_.size(); first += pass) {
    const std::span<const exec::Executor::LaneRun> lanes(lane_runs_);
    executors_.full_context().run_together(
        lanes.subspan(first, std::min(pass, lanes.size() - first)),
        exchange_.gradients(),
        static_cast<int>(first));
    exchange_.gradients().end_lane();
  }
}

double StepGradients::computed_share() const {
  double flops = 0;
  for (const data::LaneBatch& batch : batches_.taken())
    flops += static_cast<double>(executors_.planned(batch.tokens).plan.flops);
  return flops / static_cast<double>(lanes_.size()) /
         static_cast<double>(context_.plan.programs.training.flops);
}

}  // namespace lockstep::train
