#pragma once
// The head of a network: the linear layer whose outputs are the logits of classes or of a
// vocabulary. Its number of outputs N is whatever the data have, such as GPT-2's 50,257 tokens, but
// the three products of the layer are fast only if N is a multiple of the device's tiles. So
// GraphOptions::head_multiple rounds N up in memory, and nowhere else:
//
//   weight (N, K), bias (N)    rows of zeros follow (Tensor::padded_rows)
//   logits (M, N)              each row is longer (Tensor::padded_columns)
//   d_logits (M, N)            the loss writes zeros to the padding
//
// The products then have N rounded up. The padding of the logits is 0 and is never read as a logit.
// Those of d_weight and d_bias are sums of zeros, and optimizers keep zeros. d_x gets terms that
// are 0. So no number outside of the padding changes.

#include <cstdint>

#include "runtime/graph/builder.h"

namespace lockstep::graph::ops {

// Pads the weight (N, K) and the bias (N), or kNoTensor, if both are parameters. Returns the number
// of columns that the logits have in memory: N rounded up.
int64_t pad_head(GraphBuilder& builder, TensorId weight, TensorId bias);

// Pads logits (..., N) and the linear layer that computes them, with or without a LoRA, if no other
// op has read the logits. Later ops must not read them either, except a loss.
void pad_logits(GraphBuilder& builder, TensorId logits);

}  // namespace lockstep::graph::ops
