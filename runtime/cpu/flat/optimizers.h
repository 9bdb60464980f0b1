#pragma once
// Optimizer steps on slices of the flat buffers.

#include "runtime/exec/optimizers/list.h"

namespace lockstep::cpu {

// Updates a slice by the formulas of exec/optimizers/, bit for bit.
void optimizer_update(const exec::OptimizerUpdate& update, const exec::OptimizerSlice& slice);

}  // namespace lockstep::cpu
