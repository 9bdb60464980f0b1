#pragma once
// How much the clocks of ranks on several hosts differ.
//
// All ranks run an all-gather many times and record when they enter and leave it. No rank leaves
// before all have entered. So if this rank's clock is d ahead of rank 0's, every round gives d <=
// left here - entered there and d >= entered here - left there. The tightest of these bounds
// enclose d.

#include <span>

#include "collectives/communicator.h"
#include "runtime/base/time.h"

namespace lockstep::collectives {

struct ClockOffset {
  double add_ms = 0;     // add it to this rank's now_ms() to get rank 0's
  double within_ms = 0;  // the max error of add_ms
};

// When a rank entered and left one all-gather.
struct ClockExchange {
  double entered_ms = 0, left_ms = 0;
};

// Computes the offset from the same all-gathers as recorded by rank 0 and by this rank. If the
// bounds allow that the clocks are equal, the offset is 0: ranks of one host have the same clock.
ClockOffset clock_offset(std::span<const ClockExchange> root, std::span<const ClockExchange> mine);

// Runs the all-gathers and computes the offset of this clock. Collective; takes as long as about a
// hundred small messages.
ClockOffset measure_clock_offset(Communicator& communicator, double (*clock_ms)() = now_ms);

}  // namespace lockstep::collectives
