#pragma once
// Measures the phases of a step.

#include "runtime/base/time.h"

namespace lockstep::metrics {

// Adds the milliseconds of its own lifetime to a sum.
class PhaseTimer {
 public:
  explicit PhaseTimer(double& sum_ms) : sum_ms_(sum_ms), start_ms_(now_ms()) {}
  ~PhaseTimer() { sum_ms_ += now_ms() - start_ms_; }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  double& sum_ms_;
  double start_ms_;
};

}  // namespace lockstep::metrics
