#pragma once
// Whether execution.bf16x3 or execution.precision: BF16 would make a run on CPUs faster.

#include <string>

#include "runtime/config/run_config.h"
#include "runtime/exec/device.h"

namespace lockstep::launcher {

// Milliseconds of a linear layer of 256 x 1024 x 1024 on compute_threads() threads: the median of a
// few, after a warm-up.
double linear_layer_ms(exec::Device& device, bool bf16x3, DType compute = DType::kF32);

// A line for the log if bf16x3 or BF16 is at least a tenth faster; otherwise empty.
std::string bf16x3_advice(double fp32_ms, double bf16x3_ms, double bf16_ms);

// Measures them if the device is a processor with a unit for bfloat16 and the run computes in FP32
// without bf16x3. Takes some milliseconds, and changes nothing.
std::string measured_bf16x3_advice(exec::Device& device, const ExecutionConfig& execution);

}  // namespace lockstep::launcher
