#pragma once

#include "runtime/exec/optimizer_math.h"

namespace lockstep::cpu {

// Updates the parameters and moments of a slice by the formulas of optimizer_math.h, bit for bit.
void optimizer_update(const OptimizerSlice& slice);
// The same for the first half of LAMB.
void lamb_directions(const LambSlice& slice);

}  // namespace lockstep::cpu
