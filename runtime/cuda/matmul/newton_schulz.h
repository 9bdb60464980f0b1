#pragma once
// Newton-Schulz iterations: see exec/optimizers/newton_schulz.h.

#include <cstddef>
#include <type_traits>
#include <utility>

#include "runtime/cuda/matmul/matmul.h"
#include "runtime/cuda/matmul/newton_schulz_steps.h"
#include "runtime/exec/optimizers/newton_schulz.h"

namespace lockstep::cuda {

// Size of a unit of the workspace, so that each of its parts, and each half of one, is aligned for
// products.
inline constexpr int64_t kPieceFloats = 128;
inline int64_t round_up_to_pieces(int64_t floats) {
  return (floats + kPieceFloats - 1) / kPieceFloats * kPieceFloats;
}

// Size in bytes of newton_schulz()'s workspace: another matrix or two of 16 bits, A, A A, and the
// parts of a norm.
inline size_t newton_schulz_bytes(int64_t rows, int64_t columns) {
  const exec::NewtonSchulz shape = {.rows = rows, .columns = columns};
  const int64_t floats =
      round_up_to_pieces(shape.elements()) + 2 * round_up_to_pieces(shape.order() * shape.order());
  return static_cast<size_t>(floats) * sizeof(float) + kNormParts * sizeof(double);
}

// Orthogonalizes a matrix (rows, columns) in place. multiply(Product, ProductOperands) queues a
// product on `stream`. T: the type of the products' inputs, float or BFloat16; their sums, A A and
// the result are floats.
template <typename T, typename Multiply>
void newton_schulz(float* matrix,
                   const exec::NewtonSchulz& shape,
                   bool tf32,
                   std::byte* workspace,
                   Stream stream,
                   Multiply multiply) {
  constexpr bool kFloats = std::is_same_v<T, float>;
  constexpr DType kType = kFloats ? DType::kF32 : DType::kBF16;
  const int64_t order = shape.order(), longer = shape.tall() ? shape.rows : shape.columns;
  float* const other = reinterpret_cast<float*>(workspace);
  float* const squares = other + round_up_to_pieces(shape.elements());
  T* const gram = reinterpret_cast<T*>(squares + round_up_to_pieces(order * order));
  auto* const parts = reinterpret_cast<double*>(squares + 2 * round_up_to_pieces(order * order));
  // A = X X^T, or X^T X if X is tall; A A; and the product with the polynomial.
  const Product of_gram = {.m = order,
                           .n = order,
                           .k = longer,
                           .transpose_a = shape.tall(),
                           .transpose_b = !shape.tall(),
                           .in = kType,
                           .out = kType,
                           .tf32 = tf32};
  const Product of_squares = {.m = order, .n = order, .k = order, .in = kType, .tf32 = tf32};
  Product of_next = {.m = shape.rows, .n = shape.columns, .k = order, .in = kType, .tf32 = tf32};
  // The iterations alternate between two matrices of T: `matrix` and another one, so that the last
  // result is in `matrix`, or two in the workspace.
  T *from, *to;
  if constexpr (kFloats) {
    from = matrix, to = other;
    if (shape.iterations % 2 == 1) std::swap(from, to);
  } else {
    from = reinterpret_cast<T*>(other);
    to = reinterpret_cast<T*>(other + round_up_to_pieces(shape.elements()) / 2);
  }
  divide_by_norm(matrix, shape.elements(), exec::kNewtonSchulzLeastNorm, parts, from, stream);
  for (int i = 0; i < shape.iterations; ++i) {
    const bool last = i + 1 == shape.iterations;
    const float scale = last ? shape.scale : 1;
    multiply(of_gram, {.a = from, .b = from, .out = gram});
    multiply(of_squares, {.a = gram, .b = gram, .out = squares});
    T* const factor = gram;
    add_up_polynomial(squares,
                      order,
                      scale * exec::kNewtonSchulzA,
                      scale * exec::kNewtonSchulzB,
                      scale * exec::kNewtonSchulzC,
                      factor,
                      stream);
    of_next.out = last ? DType::kF32 : kType;
    void* const next = last ? static_cast<void*>(matrix) : to;
    multiply(of_next,
             {.a = shape.tall() ? from : factor, .b = shape.tall() ? factor : from, .out = next});
    std::swap(from, to);
  }
}

}  // namespace lockstep::cuda
