#pragma once
// Writes timeline.json of a run: for each rank its steps with their phases, ops and waits, and the
// communication in progress: the exchange of each bucket's gradients on each level, and the gather
// of its parameters. For each collective it names the rank that arrived last.

#include "collectives/agree/clock_offset.h"
#include "collectives/exchange/exchange_observer.h"
#include "runtime/exec/op_observer.h"
#include "runtime/metrics/timeline.h"
#include "runtime/train/run_context.h"

namespace lockstep::train {

class RunTimeline : public collectives::ExchangeObserver, public exec::OpObserver {
 public:
  // Null if the config wants no timeline.
  static std::unique_ptr<RunTimeline> make(const RunContext& context);
  explicit RunTimeline(const RunContext& context);

  metrics::Timeline* spans() { return &timeline_; }
  // Records a step that ends now.
  void step_done(int64_t step, double start_ms);
  // Records the device's part of the exchange after the backward pass, which ends now.
  void device_reduced(double reduce_ms);

  // On a device that works from a queue, the host's times of ops and exchanges mean nothing, so
  // they are left out.
  void exchanged(int bucket, size_t bytes, size_t level, double start_ms, double end_ms) override;
  void gathered(int bucket, size_t bytes, double start_ms, double end_ms) override;
  void waited(Wait what, int bucket, double start_ms, double end_ms) override;
  void ran(size_t op, double start_ms, double end_ms) override;

  // Compares the clocks of the ranks, and has rank 0 write the file and log how well the clocks
  // agree and what was dropped. Times count from the beginning of the run. Collective; throws
  // AgreedError.
  void write(const std::vector<std::string>& hosts) const;

 private:
  void log_quality(const collectives::ClockOffset& offset,
                   const std::vector<std::string>& hosts) const;
  metrics::CollectiveArrivals collective_arrivals(double add_ms) const;

  const RunContext& context_;
  bool queued_;
  std::vector<collectives::RankGroup> groups_;  // with which this rank exchanges, by level
  std::vector<std::string> op_names_;           // of the training graph
  metrics::Timeline timeline_;
  double start_ms_;  // origin of rank 0's times
};

}  // namespace lockstep::train
