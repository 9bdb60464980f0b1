#pragma once

#include "runtime/cuda/stream.h"
#include "runtime/exec/optimizer_math.h"

namespace lockstep::cuda {

// Updates the float parameters and moments of a slice by the formulas of optimizer_math.h, and
// writes the new parameters, rounded to T, to `stored`: one pass over memory. For T = float
// `stored` is null. T is float, BFloat16 or Float16. slice.constants says which optimizer it is;
// its numbers are read from `constants`, a copy on the device.
template <typename T>
void optimizer_update(const OptimizerSlice& slice,
                      const OptimizerConstants* constants,
                      T* stored,
                      Stream stream);

}  // namespace lockstep::cuda
