#pragma once
// The denominator of MFU on a CPU.

namespace lockstep::cpu {

// Floating-point operations a second of one core in fp32 multiply-adds, as measured in a few
// milliseconds; the best of several tries, kept for later calls.
double measure_peak_flops();

}  // namespace lockstep::cpu
