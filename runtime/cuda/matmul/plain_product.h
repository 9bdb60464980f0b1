#pragma once
// Matrix products without a library, with one thread for each element of the result. Slow; for
// shapes for which cuBLASLt has no algorithm.

#include "runtime/cuda/matmul/matmul.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// Queues `product`, whose epilogue is kNone or kBias, on `stream`. The terms are added in order of
// k by fused multiply-adds.
void plain_product(const Product& product, const ProductOperands& operands, Stream stream);

}  // namespace lockstep::cuda
