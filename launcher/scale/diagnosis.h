#pragma once
// The sentence at the end of a scaling report.

#include <string>

#include "launcher/scale/report.h"

namespace lockstep::scale {

// Explains where most of a world's time is lost and what to do about it: one sentence, without the
// full stop. For the smallest world: what its own step waits for.
std::string diagnose(const ScaleRow& row, bool smallest);

// The sum of the positive parts, to which shares of the loss refer.
double lost_altogether(const Parts& lost);

}  // namespace lockstep::scale
