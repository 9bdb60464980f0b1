#pragma once
// Newton-Schulz iterations: see exec/optimizers/newton_schulz.h.

#include <cstddef>
#include <utility>

#include "runtime/cuda/matmul/matmul.h"
#include "runtime/cuda/matmul/newton_schulz_steps.h"
#include "runtime/exec/optimizers/newton_schulz.h"

namespace lockstep::cuda {

// Of the pieces of the workspace: each begins where products' operands may.
inline constexpr int64_t kPieceFloats = 64;
inline int64_t whole_pieces(int64_t floats) {
  return (floats + kPieceFloats - 1) / kPieceFloats * kPieceFloats;
}

// What newton_schulz() works in: another matrix, A, A A, and the parts of a norm.
inline size_t newton_schulz_bytes(int64_t rows, int64_t columns) {
  const NewtonSchulz shape = {.rows = rows, .columns = columns};
  const int64_t floats =
      whole_pieces(shape.elements()) + 2 * whole_pieces(shape.order() * shape.order());
  return static_cast<size_t>(floats) * sizeof(float) + kNormParts * sizeof(double);
}

// Makes a matrix (rows, columns) orthogonal, in place. multiply(Product, ProductOperands) queues a
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
  float* const gram = other + whole_pieces(shape.elements());
  float* const squares = gram + whole_pieces(order * order);
  auto* const parts = reinterpret_cast<double*>(squares + whole_pieces(order * order));
  // A = X X^T, or X^T X of a tall one; A A; and what the polynomial is multiplied with.
  const Product of_gram = {.m = order,
                           .n = order,
                           .k = longer,
                           .transpose_a = shape.tall(),
                           .transpose_b = !shape.tall(),
                           .tf32 = tf32};
  const Product of_squares = {.m = order, .n = order, .k = order, .tf32 = tf32};
  const Product of_next = {.m = shape.rows, .n = shape.columns, .k = order, .tf32 = tf32};
  // Each iteration goes from one matrix to the other; the last one ends where it began.
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
