#pragma once
// The sentence that a scaling report ends with.

#include <string>

#include "launcher/scale/report.h"

namespace lockstep::scale {

// Where most of a world's time is lost and what to do about it: one sentence, without its full
// stop. Of the smallest world: what its own step waits for.
std::string verdict_of(const ScaleRow& row, bool smallest);

// The sum of the parts that are above zero: what shares of the loss are shares of.
double lost_altogether(const Parts& lost);

}  // namespace lockstep::scale
