#pragma once
// Where the time of a step goes, on this rank.

#include "runtime/base/time.h"

namespace lockstep {

struct StepClock {
  // Milliseconds of the step under way. Stragglers are part of the exchange.
  struct Phases {
    double data = 0, compute = 0, exchange = 0, stragglers = 0, optimizer = 0;
  };
  Phases phases;
  double start_ms = 0;  // what the time of the step under way counts from
  double met_ms = 0;    // when the ranks last left an exchange together

  // The time of the next step counts from now.
  void start_step() { start_ms = now_ms(); }
  // The ranks have just left an exchange together.
  void ranks_met() { met_ms = now_ms(); }
};

}  // namespace lockstep
