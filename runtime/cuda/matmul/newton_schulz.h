#pragma once
// Newton-Schulz iterations: see exec/optimizers/newton_schulz.h.

#include <cstddef>
#include <utility>

#include "runtime/cuda/matmul/matmul.h"
#include "runtime/cuda/matmul/newton_schulz_steps.h"
#include "runtime/exec/optimizers/newton_schulz.h"

namespace lockstep::cuda {

// Size of a unit of the workspace, so that each of its parts is aligned for products.
inline constexpr int64_t kPieceFloats = 64;
inline int64_t round_up_to_pieces(int64_t floats) {
  return (floats + kPieceFloats - 1) / kPieceFloats * kPieceFloats;
}

// Size in bytes of newton_schulz()'s workspace: another matrix, A, A A, and the parts of a norm.
inline size_t newton_schulz_bytes(int64_t rows, int64_t columns) {
  const NewtonSchulz shape = {.rows = rows, .columns = columns};
  const int64_t floats =
      round_up_to_pieces(shape.elements()) + 2 * round_up_to_pieces(shape.order() * shape.order());
  return static_cast<size_t>(floats) * sizeof(float) + kNormParts * sizeof(double);
}

// Orthogonalizes a matrix (rows, columns) in place. multiply(Product, ProductOperands) queues a
// product of floats on `stream`.
template <typename Multiply>
void newton_schulz(float* matrix,
                   const NewtonSchulz& shape,
                   bool tf32,
                   std::byte* workspace,
                   Stream stream,
                   Multiply multiply) {
  const int64_t order = shape.order(), longer = shape.tall() ? shape.rows : shape.columns;
  float* const other = reinterpret_cast<float*>(workspace);
  float* const gram = other + round_up_to_pieces(shape.elements());
  float* const squares = gram + round_up_to_pieces(order * order);
  auto* const parts = reinterpret_cast<double*>(squares + round_up_to_pieces(order * order));
  // A = X X^T, or X^T X if X is tall; A A; and the product with the polynomial.
  const Product of_gram = {.m = order,
                           .n = order,
                           .k = longer,
                           .transpose_a = shape.tall(),
                           .transpose_b = !shape.tall(),
                           .tf32 = tf32};
  const Product of_squares = {.m = order, .n = order, .k = order, .tf32 = tf32};
  const Product of_next = {.m = shape.rows, .n = shape.columns, .k = order, .tf32 = tf32};
  // The iterations alternate between two matrices, so that the last result is in `matrix`.
  float *from = matrix, *to = other;
  if (shape.iterations % 2 == 1) std::swap(from, to);
  divide_by_norm(matrix, shape.elements(), kNewtonSchulzLeastNorm, parts, from, stream);
  for (int i = 0; i < shape.iterations; ++i) {
    const float scale = i + 1 == shape.iterations ? shape.scale : 1;
    multiply(of_gram, {.a = from, .b = from, .out = gram});
    multiply(of_squares, {.a = gram, .b = gram, .out = squares});
    add_up_polynomial(gram,
                      order,
                      scale * kNewtonSchulzA,
                      scale * kNewtonSchulzB,
                      scale * kNewtonSchulzC,
                      squares,
                      stream);
    multiply(of_next,
             {.a = shape.tall() ? from : squares, .b = shape.tall() ? squares : from, .out = to});
    std::swap(from, to);
  }
}

}  // namespace lockstep::cuda
