#pragma once
// Time accounting of a step on this rank.

#include "runtime/metrics/phase_timer.h"
#include "runtime/train/folder/run_timeline.h"

namespace lockstep::train {

struct StepClock {
  // Milliseconds of the current step. Stragglers are part of the exchange.
  struct Phases {
    double data = 0, compute = 0, exchange = 0, stragglers = 0, optimizer = 0;
  };
  Phases phases;
  double start_ms = 0;              // when the current step began
  double met_ms = 0;                // when the ranks last left a collective together
  double waited_ms = 0;             // for other ranks since then, in a step that is done
  RunTimeline* timeline = nullptr;  // borrowed; may be null

  // The next step begins now.
  void start_step() { start_ms = now_ms(); }
  // The ranks have just left a collective together.
  void ranks_met() {
    met_ms = now_ms();
    waited_ms = 0;
  }
  // The time since then, without these waits.
  double busy_ms() const { return now_ms() - met_ms - waited_ms; }

  // Records a span of the timeline, until the result is destroyed.
  metrics::Timeline::Span span(const char* name) const {
    return {timeline != nullptr ? timeline->spans() : nullptr, name, "step"};
  }
  // Also adds its milliseconds to a phase.
  struct Timed {
    metrics::PhaseTimer timer;
    metrics::Timeline::Span span;
  };
  Timed time(double Phases::*phase, const char* name) {
    return {metrics::PhaseTimer(phases.*phase), span(name)};
  }
};

}  // namespace lockstep::train
