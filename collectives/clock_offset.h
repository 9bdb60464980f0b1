#pragma once
// How the clocks of ranks on several hosts differ.
//
// All ranks meet in an all-gather again and again and note when they enter and leave it. Nobody
// leaves before everybody has entered. So if this rank's clock is d ahead of rank 0's, then
// d <= left here - entered there and d >= entered here - left there, in every round: the
// tightest of these bounds enclose d.

#include <span>

#include "collectives/communicator.h"

namespace lockstep {

struct ClockOffset {
  double add_ms = 0;     // to this rank's now_ms() gives rank 0's
  double within_ms = 0;  // how much that may be wrong
};

// When a rank entered and left one meeting.
struct ClockMeeting {
  double entered_ms = 0, left_ms = 0;
};

// From the same meetings as rank 0 and as this rank saw them. Clocks that may be equal by these are
// taken to be equal: ranks of one host have the same one.
ClockOffset clock_offset(std::span<const ClockMeeting> root, std::span<const ClockMeeting> mine);

// Meets. All ranks together; takes about a hundred small messages' time.
ClockOffset measure_clock_offset(Communicator& communicator);

}  // namespace lockstep
