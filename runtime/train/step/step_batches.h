#pragma once
// The batches of this rank's lanes, from the loader to where the ops read them.

#include "runtime/train/step/batch_stage.h"
#include "runtime/train/step/step_clock.h"

namespace lockstep::train {

class StepBatches {
 public:
  // All borrowed.
  StepBatches(const RunContext& context, const RunMemory& memory, StepClock& clock);

  // Continues with the batches of the step after `done` completed ones.
  void start(int64_t done);
  // Takes the batches of the next step.
  void take();
  // The batches taken last, by local lane.
  const std::vector<data::LaneBatch>& taken() const { return taken_; }
  // See BatchStage::copy_current().
  data::LaneBatch copy_current(size_t lane) const { return stage_.copy_current(lane); }
  // Loads the batches of the next step while queued work uses those taken, on a device where this
  // overlaps, and only if they need not be waited for.
  void load_ahead() {
    if (stage_.ahead() && loader_->ready()) load();
  }

 private:
  void load();

  const RunContext& context_;
  StepClock& clock_;
  std::span<std::byte> memory_;  // of the loader
  BatchStage stage_;
  std::vector<data::LaneBatch> taken_;
  std::unique_ptr<data::Loader> loader_;
};

}  // namespace lockstep::train
