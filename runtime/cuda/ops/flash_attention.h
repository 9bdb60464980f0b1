#pragma once
// Attention by native kernels on tensor cores: kAttention and kAttentionBackward in BF16 and FP16,
// and in floats rounded to TF32, with all masks and dropout. Heads have at most kMaxHeadSize
// elements, of any number. Queued on the op's stream. The backward pass needs
// native_attention_backward_workspace() and sums without atomics: the shape alone fixes the order
// of each sum.

#include "runtime/graph/op_call.h"

namespace lockstep::cuda {

void flash_attention(const graph::OpCall& call);
void flash_attention_backward(const graph::OpCall& call);

}  // namespace lockstep::cuda
