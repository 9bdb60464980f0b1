#pragma once
// timeline.json of a run: per rank its steps with their phases, ops and waits, and beside them what
// was under way meanwhile: the exchange of each bucket's gradients on each level and the gather of
// its parameters. Where ranks meet it names the one that came last.

#include "collectives/clock_offset.h"
#include "collectives/exchange_observer.h"
#include "runtime/exec/op_observer.h"
#include "runtime/metrics/timeline.h"
#include "runtime/train/run_parts.h"

namespace lockstep {

class RunTimeline : public ExchangeObserver, public OpObserver {
 public:
  // Null where the config wants none.
  static std::unique_ptr<RunTimeline> make(const RunParts& parts);
  explicit RunTimeline(const RunParts& parts);

  Timeline* spans() { return &timeline_; }
  // A step that ends now.
  void step_done(int64_t step, double start_ms);
  // What of the exchange the device did after the backward pass, which ends now.
  void device_reduced(double reduce_ms);

  // On a device that works from a queue the host's times of ops and exchanges mean nothing: they
  // are left out.
  void exchanged(int bucket, size_t bytes, size_t level, double start_ms, double end_ms) override;
  void gathered(int bucket, size_t bytes, double start_ms, double end_ms) override;
  void waited(Wait what, int bucket, double start_ms, double end_ms) override;
  void ran(size_t op, double start_ms, double end_ms) override;

  // Compares the clocks of the ranks and has rank 0 write the file, whose times count from
  // the beginning of the run, and tell how well the clocks agree and what was not kept. All ranks
  // together.
  // Throws AgreedError.
  void write(const std::vector<std::string>& hosts) const;

 private:
  void tell(const ClockOffset& offset, const std::vector<std::string>& hosts) const;
  Meetings meetings(double add_ms) const;

  const RunParts& parts_;
  bool queued_;
  std::vector<RankGroup> groups_;      // that this rank exchanges with, by level
  std::vector<std::string> op_names_;  // of the training graph
  Timeline timeline_;
  double start_ms_;  // where rank 0's times are counted from
};

}  // namespace lockstep
