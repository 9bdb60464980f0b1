#pragma once
// The two ways to run a product of an op: an implementation is compiled for each of them.

#include "runtime/cuda/context.h"
#include "runtime/cuda/matmul/matmul.h"
#include "runtime/cuda/matmul/plain_product.h"

namespace lockstep::cuda {

// By cuBLASLt.
inline void multiply(const graph::OpCall& call,
                     const Product& product,
                     const ProductOperands& operands) {
  context_of(call).matmul->run(product, operands);
}
// By the plain kernel.
inline void multiply_plainly(const graph::OpCall& call,
                             const Product& product,
                             const ProductOperands& operands) {
  plain_product(product, operands, stream_of(call));
}
using Multiply = decltype(multiply);

}  // namespace lockstep::cuda
