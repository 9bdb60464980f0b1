#pragma once
// The denominator of MFU (model FLOPs utilization) on a CPU.

namespace lockstep::cpu {

// Returns the floating-point operations per second of one core in fp32 multiply-adds, by the core's
// clock of now: the best of several tries of a few milliseconds in all.
double measure_peak_flops();

// The same, measured by the first call and kept for later ones.
double peak_flops();

}  // namespace lockstep::cpu
