#include "runtime/cpu/matmul/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/matmul/gemm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/matmul/newton_schulz.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// Plain loops, which the compiler vectorises for each instruction set. The products take nearly all
// of the time.
HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

void scale_kernel(const float* from, float factor, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = factor * from[i];
}

// squares <- b gram + c squares, for n elements.
void polynomial_kernel(
    const float* HWY_RESTRICT gram, float b, float c, float* HWY_RESTRICT squares, int64_t n) {
  for (int64_t i = 0; i < n; ++i) squares[i] = std::fma(c, squares[i], b * gram[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(scale_kernel);
HWY_EXPORT(polynomial_kernel);

namespace {

constexpr int64_t kLine = 16;  // floats

int64_t round_up_to_lines(int64_t floats) { return (floats + kLine - 1) / kLine * kLine; }

// The workspace: a second matrix, A, A A, and the workspace of the products.
struct Workspace {
  Workspace(const exec::NewtonSchulz& shape, void* memory)
      : other(static_cast<float*>(memory)),
        gram(other + round_up_to_lines(shape.elements())),
        squares(gram + round_up_to_lines(shape.order() * shape.order())),
        products(squares + round_up_to_lines(shape.order() * shape.order())) {}
  float *other, *gram, *squares;
  void* products;
};

size_t products_bytes(const exec::NewtonSchulz& shape) {
  const int64_t order = shape.order(), longer = std::max(shape.rows, shape.columns);
  const auto bytes = [](int64_t rows, int64_t columns, int64_t depth) {
    return gemm_workspace_bytes(rows, columns, depth, compute_threads());
  };
  return static_cast<size_t>(std::max({bytes(order, order, longer),
                                       bytes(order, order, order),
                                       bytes(shape.rows, shape.columns, order)}));
}

// gram = X X^T, or X^T X if X is tall.
Gemm gram_of(const exec::NewtonSchulz& shape, const float* x, float* gram) {
  const GemmOperand as_it_is = {x, shape.columns}, transposed = {x, shape.columns, true};
  return {.rows = shape.order(),
          .columns = shape.order(),
          .depth = std::max(shape.rows, shape.columns),
          .a = shape.tall() ? transposed : as_it_is,
          .b = shape.tall() ? as_it_is : transposed,
          .c = gram,
          .c_stride = shape.order()};
}

// to = polynomial X, or X polynomial if X is tall.
Gemm next_of(const exec::NewtonSchulz& shape, const float* x, const float* polynomial, float* to) {
  const GemmOperand matrix = {x, shape.columns}, factor = {polynomial, shape.order()};
  return {.rows = shape.rows,
          .columns = shape.columns,
          .depth = shape.order(),
          .a = shape.tall() ? matrix : factor,
          .b = shape.tall() ? factor : matrix,
          .c = to,
          .c_stride = shape.columns};
}

}  // namespace

size_t newton_schulz_bytes(int64_t rows, int64_t columns) {
  const exec::NewtonSchulz shape = {.rows = rows, .columns = columns};
  const int64_t floats =
      round_up_to_lines(shape.elements()) + 2 * round_up_to_lines(shape.order() * shape.order());
  return static_cast<size_t>(floats) * sizeof(float) + products_bytes(shape);
}

void newton_schulz(float* matrix, const exec::NewtonSchulz& shape, double norm, void* workspace) {
  const Workspace work(shape, workspace);
  const int64_t order = shape.order(), squared = order * order;
  const auto scale_all = HWY_DYNAMIC_DISPATCH(scale_kernel);
  const auto add_up = HWY_DYNAMIC_DISPATCH(polynomial_kernel);
  // The iterations alternate between two matrices, so that the last result is in `matrix`.
  float *from = matrix, *to = work.other;
  if (shape.iterations % 2 == 1) std::swap(from, to);
  const auto inverse = static_cast<float>(1 / std::max(norm, exec::kNewtonSchulzLeastNorm));
  parallel_for(shape.elements(), kGrainElements, [&](int64_t begin, int64_t end) {
    scale_all(matrix + begin, inverse, from + begin, end - begin);
  });
  for (int i = 0; i < shape.iterations; ++i) {
    const float scale = i + 1 == shape.iterations ? shape.scale : 1;
    gemm(gram_of(shape, from, work.gram), work.products);
    gemm({.rows = order,
          .columns = order,
          .depth = order,
          .a = {work.gram, order},
          .b = {work.gram, order},
          .c = work.squares,
          .c_stride = order},
         work.products);
    parallel_for(squared, kGrainElements, [&](int64_t begin, int64_t end) {
      add_up(work.gram + begin,
             scale * exec::kNewtonSchulzB,
             scale * exec::kNewtonSchulzC,
             work.squares + begin,
             end - begin);
    });
    for (int64_t k = 0; k < order; ++k) work.squares[k * order + k] += scale * exec::kNewtonSchulzA;
    gemm(next_of(shape, from, work.squares, to), work.products);
    std::swap(from, to);
  }
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
