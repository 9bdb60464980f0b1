#pragma once
// The CPU as a device that a run may choose.

#include "runtime/exec/device.h"

namespace lockstep::cpu {

std::unique_ptr<Device> make_device();

// Whether this processor has a unit for products of bfloat16, which execution.bf16x3 is meant for.
bool has_bf16_unit();

}  // namespace lockstep::cpu
