#pragma once
// The CPU as a device that a run may choose.

#include <memory>
#include <string>

#include "runtime/exec/device.h"

namespace lockstep::cpu {

std::unique_ptr<exec::Device> make_device();

// What multiplies bfloat16 (execution.precision: BF16) faster here than floats are multiplied:
// "AMX", "AVX512-BF16"; empty: nothing does.
std::string name_of_bf16_products();

// Whether this processor has a matrix unit for bfloat16, for which execution.bf16x3 is meant.
bool has_bf16_unit();

}  // namespace lockstep::cpu
