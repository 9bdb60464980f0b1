#pragma once
// The convolutions of conv2d.h, of bfloat16, by the tiles of bf16x3.h. Each output is a sum in the
// order of bf16x3.h: over the kernel's taps, each of which begins a new chunk, and their channels
// (forward and gradient of the input), or over the output pixels of the batch (gradient of the
// weights). Padding counts as zeros. Otherwise the contract is that of conv2d.h.

#include <cstdint>

#include "runtime/base/half.h"
#include "runtime/cpu/conv2d/conv2d.h"

namespace lockstep::cpu::tiles {

// Whether a convolution has enough channels to fill tiles. Depends neither on the batch nor on the
// size of the images.
bool supports(const graph::Conv2dShape& shape);

// The functions below require supports(shape).
int64_t conv2d_workspace_bytes(const graph::Conv2dShape& shape, int threads);
int64_t conv2d_forward_workspace_bytes(const graph::Conv2dShape& shape, int threads);
void conv2d_forward(const Conv2dProduct<BFloat16>& op, void* workspace);
void conv2d_backward_input(const graph::Conv2dBackward<BFloat16>& op);
void conv2d_backward_weight(const graph::Conv2dBackward<BFloat16>& op);

}  // namespace lockstep::cpu::tiles
