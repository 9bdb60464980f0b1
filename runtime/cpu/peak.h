#pragma once
// Peak rates of a CPU's arithmetic units, in floating-point operations per second by the clock of
// now: the best of several tries of a fraction of a millisecond each.

namespace lockstep::cpu {

// FP32 multiply-adds of `threads` compute threads (at most compute_threads()) together.
double measure_peak_flops(int threads = 1);

// Products of bfloat16 on the matrix units of `threads` compute threads. 0: this process uses none.
double measure_tile_flops(int threads = 1);

// measure_peak_flops() of one core, measured by the first call and kept for later ones: the
// denominator of MFU (model FLOPs utilization).
double peak_flops();

}  // namespace lockstep::cpu
