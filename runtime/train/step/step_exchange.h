#pragma once
// What the ranks send each other in a step: gradients, which are summed, and what is gathered from
// the ranks that own it: parameters, or sums if every rank updates all parameters.

#include <optional>

#include "collectives/gather/sum_all_gather.h"
#include "collectives/power_sgd/power_sgd.h"
#include "collectives/reduce/device_sums.h"
#include "collectives/reduce/gradient_exchange.h"
#include "collectives/reduce/step_totals.h"
#include "runtime/train/folder/run_timeline.h"
#include "runtime/train/step/gathered_checksums.h"

namespace lockstep::train {

// All methods are collective, except those that are const, or observe.
class StepExchange {
 public:
  // Both are borrowed.
  StepExchange(const RunContext& context, const RunMemory& memory);

  // Reports exchanges and waits to the borrowed timeline, which may be null.
  void observe(RunTimeline* timeline);
  // `checked`: see GradientExchange::begin_step().
  void begin_step(collectives::TransferChecksums* checked);
  // Starts to gather the parameters of the last update; ops wait for those that they read.
  // `checked`: computes checksums of what arrives, until reduce(); may be null.
  void start_gather(GatheredChecksums* checked);
  // Completes the exchange of the gradients: sums() has this rank's parts of the global batch's.
  void reduce(GatheredChecksums* checked);
  // After reduce(), if the next forward pass is to gather some of the sums: starts that, and calls
  // `arrived` with each bucket once sums() has all of it. Ops wait for the buckets that they read.
  void start_later_sums(std::function<void(int bucket)> arrived);
  // Waits for the queued work, then sums the statistics and squares of the step over all ranks.
  collectives::StepTotals totals(std::span<const collectives::LaneStatistics> local,
                                 collectives::StepReport report);
  // The same in two parts, on a device that decides about its updates. Queues the gather of the
  // statistics and squares;
  collectives::GatheredSums gather_sums(std::span<const collectives::LaneStatistics> local);
  // and exchanges what the ranks report, while the device works.
  collectives::StepTotals reports(const collectives::StepReport& report);
  // This rank's parameters have changed: what has been gathered is old.
  void parameters_changed() { gathered_ = false; }
  // Gathers the latest parameters on every rank, or what they are computed from, if no step follows
  // that would do so.
  void gather_parameters();

  const collectives::OwnedFloats& sums() const { return gradients_->sums(); }
  // Of the sums: see GradientExchange::bit_checksums().
  std::span<const uint32_t> bit_checksums() const { return gradients_->bit_checksums(); }
  // The part of the exchange that is not hidden so far: the host's waits since begin_step() and, on
  // a device that works from a queue, the device's time after the backward pass.
  double exposed_ms() const;
  // Whether a device's queue waits for other ranks.
  bool queued() const;

  // For the executors of passes.
  collectives::GradientExchange& gradients() { return *gradients_; }
  // What the forward pass waits for.
  collectives::BucketAllGather& forward_gather();

 private:
  const RunContext& context_;
  std::unique_ptr<collectives::PowerSgd> power_sgd_;  // null without PowerSGD
  std::unique_ptr<collectives::GradientExchange> gradients_;
  collectives::TotalsExchange totals_;
  std::optional<collectives::DeviceSums> device_sums_;  // none on the host
  collectives::BucketAllGather parameter_gather_;
  collectives::SumAllGather sum_gather_;  // idle if no sums are gathered
  bool gathered_ = false;                 // whether every rank has the latest parameters
};

}  // namespace lockstep::train
