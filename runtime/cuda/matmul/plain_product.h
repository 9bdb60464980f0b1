#pragma once
// Matrix products without a library: one thread for each number of the result. Slow; for shapes of
// which cuBLASLt has no algorithm.

#include "runtime/cuda/matmul/matmul.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// Queues `product`, whose epilogue is kNone or kBias, on `stream`. The terms are summed in order of
// k, each multiplied and added in one rounding.
void plain_product(const Product& product, const ProductOperands& operands, Stream stream);

}  // namespace lockstep::cuda
