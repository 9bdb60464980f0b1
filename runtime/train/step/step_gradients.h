#pragma once
// The gradients of this rank's lanes: forward and backward pass of each.

#include "runtime/exec/length_bucket_executors.h"
#include "runtime/train/step/step_batches.h"
#include "runtime/train/step/step_checks.h"
#include "runtime/train/step/step_exchange.h"

namespace lockstep::train {

class StepGradients {
 public:
  // All borrowed.
  StepGradients(const RunContext& context,
                const RunMemory& memory,
                const StepBatches& batches,
                StepExchange& exchange,
                const StepClock& clock);

  void observe(exec::OpObserver* observer) { executors_.observe(observer); }
  // Prepares the step after `done` completed ones, for the batches taken.
  void begin_step(int64_t done, double loss_scale);
  // Queues the passes of all lanes and the sum of their gradients, or replays recordings of this
  // work: see plan/recorded_graphs.h. Collective.
  void run(StepChecks& checks);
  // The same, never as a recording.
  void queue(GatheredChecksums* checked);

  // By local lane; valid when the work is done.
  std::span<const collectives::LaneStatistics> statistics() const { return statistics_; }
  // The share of the full-length work that was computed. This rank's lanes stand for all lanes.
  double computed_share() const;

 private:
  void compute(GatheredChecksums* checked, bool recorded);
  void compute_lane(size_t lane, GatheredChecksums* checked, bool recorded);
  exec::RepeatedWork* step_recording();
  void reduce(GatheredChecksums* checked);
  bool runs_together() const;
  void run_lanes();
  void run_lanes_together();

  const RunContext& context_;
  const StepBatches& batches_;
  StepExchange& exchange_;
  const StepClock& clock_;
  exec::LengthBucketExecutors executors_;
  std::vector<int> patterns_;  // by local lane: plan::recorded_lanes(); empty: steps are recorded
  // Those of lanes by the first lane of the pattern and length; for steps see step_recording().
  std::vector<std::unique_ptr<exec::RepeatedWork>> recordings_;
  std::span<graph::LaneContext> lanes_;                // by local lane
  std::span<collectives::LaneStatistics> statistics_;  // by local lane
  std::vector<exec::Executor::LaneRun> lane_runs_;     // by local lane, if lanes run together
};

}  // namespace lockstep::train
