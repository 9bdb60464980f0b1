#pragma once
// The CPU as a device that a run may choose.

#include "runtime/exec/device.h"

namespace lockstep::cpu {

std::unique_ptr<exec::Device> make_device();

// Whether products of bfloat16 (execution.precision: BF16) are faster here than those of floats.
bool multiplies_bf16();

// Whether this processor has a matrix unit for bfloat16, for which execution.bf16x3 is meant.
bool has_bf16_unit();

}  // namespace lockstep::cpu
