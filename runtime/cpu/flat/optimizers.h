#pragma once
// Optimizer steps on slices of the flat buffers.

#include "runtime/exec/optimizer_math.h"

namespace lockstep::cpu {

// Updates a slice, whose group has these constants, by the formulas of optimizer_math.h, bit for
// bit.
void optimizer_update(const OptimizerConstants& constants, const OptimizerSlice& slice);

}  // namespace lockstep::cpu
