#pragma once
// The factor that keeps FP16 gradients away from zero and infinity. It is halved if a gradient
// overflows, and that step is skipped; it is doubled after a number of steps without overflow
// (Micikevicius et al., "Mixed precision training", 2018, section 3.2).

#include <cstdint>

#include "runtime/config/run_config.h"

namespace lockstep::train {

class LossScale {
 public:
  // The factor is always 1 unless gradients are computed or summed in FP16.
  explicit LossScale(const RunConfig& config);

  bool dynamic() const { return growth_steps_ > 0; }
  double value() const { return state_.value; }
  // Call after each step. `finite`: whether its gradient was finite.
  void step_done(bool finite);
  // Whether the factor has fallen so low that a smaller one would not help.
  bool exhausted() const { return state_.value < kLeast; }

  struct State {
    double value = 1;
    int64_t good_steps = 0;  // since it last changed
    int64_t skipped = 0;     // steps since the beginning of the run, with or without a factor
    bool operator==(const State&) const = default;
  };
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  static constexpr double kLeast = 0x1p-14;
  static constexpr double kMax = 0x1p24;
  State state_;
  int64_t growth_steps_ = 0;  // 0: the factor never changes
};

}  // namespace lockstep::train
