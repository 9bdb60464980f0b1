#pragma once
// The record of a step for metrics, from what its parts have measured.

#include "runtime/metrics/step_record.h"
#include "runtime/train/step/step_gradients.h"
#include "runtime/train/step/step_update.h"

namespace lockstep::train {

class StepRecorder {
 public:
  // What a step consists of; borrowed.
  struct Parts {
    const StepClock& clock;
    const StepGradients& gradients;
    StepUpdate& update;
    const StepChecks& checks;
  };
  StepRecorder(const RunContext& context, const Parts& parts);

  // `hosts`: by rank; borrowed.
  void start(std::span<const std::string> hosts) { hosts_ = hosts; }
  // Without the fields of an evaluation. Call it when the step is done.
  metrics::StepRecord record(int64_t step,
                             const collectives::StepTotals& totals,
                             const PlannedUpdate& update) const;

 private:
  const RunContext& context_;
  Parts parts_;
  double peak_flops_ = 0;     // of all ranks
  double sample_tokens_ = 0;  // of a text on average, without padding; otherwise 0
  std::span<const std::string> hosts_;
};

}  // namespace lockstep::train
