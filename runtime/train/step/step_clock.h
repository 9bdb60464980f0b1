#pragma once
// Time accounting of a step on this rank.

#include "runtime/base/time.h"

namespace lockstep {

struct StepClock {
  // Milliseconds of the current step. Stragglers are part of the exchange.
  struct Phases {
    double data = 0, compute = 0, exchange = 0, stragglers = 0, optimizer = 0;
  };
  Phases phases;
  double start_ms = 0;  // when the current step began
  double met_ms = 0;    // when the ranks last left a collective together

  // The next step begins now.
  void start_step() { start_ms = now_ms(); }
  // The ranks have just left a collective together.
  void ranks_met() { met_ms = now_ms(); }
};

}  // namespace lockstep
