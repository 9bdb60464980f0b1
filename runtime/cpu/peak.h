#pragma once
// The denominator of MFU (model FLOPs utilization) on a CPU.

namespace lockstep::cpu {

// Returns the floating-point operations per second of one core in fp32 multiply-adds. Measures for
// a few milliseconds, takes the best of several tries and caches it for later calls.
double measure_peak_flops();

}  // namespace lockstep::cpu
