#pragma once
// Whether the first steps of a run explode. A wrong learning rate, or data that are not normalised,
// show there, long before a number overflows.

#include <cstdint>
#include <string>

#include "runtime/metrics/step_record.h"
#include "runtime/train/run_context.h"

namespace lockstep::train {

class FirstSteps {
 public:
  // The rule. Only the first kSteps steps of a run are looked at, not counting those that FP16
  // skips, and at most one is reported:
  // - the gradient's norm is at least kLargeNorm,
  // - or it is kNormGrowth times that of the first of them, and at least kNorm,
  // - or the loss is kLossGrowth times that of the first step, and at least kLoss.
  static constexpr int64_t kSteps = 20;
  static constexpr double kLargeNorm = 1e4;
  static constexpr double kNormGrowth = 1000, kNorm = 100;
  static constexpr double kLossGrowth = 10, kLoss = 10;

  // Takes step number `step`, counted from 1, of the run. Returns what explodes, such as "the
  // gradient's norm is 3.1e+07 (1.2 in step 1)"; otherwise empty.
  std::string add(int64_t step, double loss, double grad_norm);
  // Takes a step of a run. Rank 0 warns of what explodes, with what the data have to do with it.
  void watch(const RunContext& context, const metrics::StepRecord& record);

 private:
  bool begun_ = false, reported_ = false;
  int64_t first_step_ = 0, skipped_ = 0;  // 0: none was looked at yet
  double first_loss_ = 0, first_norm_ = 0;
};

}  // namespace lockstep::train
