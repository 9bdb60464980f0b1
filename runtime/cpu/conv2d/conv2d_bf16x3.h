#pragma once
// The convolutions of conv2d.h with the products of bf16x3.h: each output is a sum in that order
// over the kernel's taps, each from a chunk of its own, and their channels (forward and gradient of
// the input), or over the output pixels of the batch (gradient of the weights). Padding counts as
// zeros. The other things are as in conv2d.h.

#include <cstdint>

#include "runtime/cpu/conv2d/conv2d.h"

namespace lockstep::cpu::bf16x3 {

// Whether a convolution has so many channels that the tiles are worth it. Depends on
// neither the batch nor the size of images.
bool supports(const Conv2dShape& shape);

// For a shape that is supported.
int64_t conv2d_workspace_bytes(const Conv2dShape& shape, int threads);
int64_t conv2d_forward_workspace_bytes(const Conv2dShape& shape, int threads);
void conv2d_forward(const Conv2dProduct& op, void* workspace);
void conv2d_backward_input(const Conv2dBackward<float>& op);
void conv2d_backward_weight(const Conv2dBackward<float>& op);

}  // namespace lockstep::cpu::bf16x3
