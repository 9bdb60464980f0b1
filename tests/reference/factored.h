#pragma once
// Adafactor's matrices in plain loops: see exec/optimizers/adafactor.h.

#include "runtime/exec/optimizers/adafactor.h"
#include "tests/reference/kernel_test.h"

namespace lockstep::test {

// Matrices with one row or column, wider than a tile, batches of small ones, convolutions.
inline const FactoredShape kFactoredShapes[] = {{1, 1, 9, 1},
                                                {1, 9, 1, 1},
                                                {1, 7, 70, 1},
                                                {1, 3, 2100, 1},
                                                {5, 3, 7, 1},
                                                {6, 3, 3, 5},
                                                {2, 2, 3, 37},
                                                {3, 1, 1, 16}};

// The arrays of a tensor: gradients, words of the sums of rows and columns, factors.
struct FactoredArrays {
  FactoredShape shape;
  Guarded<float> gradients, factors;
  Guarded<int64_t> high, low;

  explicit FactoredArrays(const FactoredShape& of)
      : shape(of),
        gradients(of.elements()),
        factors(of.averages()),
        high(of.averages()),
        low(of.averages()) {
    fill_uniform(gradients, -1, 1, 1);
    fill_uniform(factors, 0, 1, 2);
    for (int64_t i = 0; i < gradients.size(); i += 5) gradients[i] *= 1e-6f;
    for (int64_t i = 0; i < of.averages(); ++i) {
      high[i] = i;
      low[i] = -2 * i;
    }
  }
  exec::FactoredPiece piece(int64_t first, int64_t elements) {
    return {.shape = shape,
            .first = first,
            .elements = elements,
            .gradients = gradients.data() + first,
            .high = high.data(),
            .low = low.data(),
            .factors = factors.data()};
  }
};

inline exec::FactoredStep factored_step(const FactoredShape& shape) {
  return {.units = exec::units_for(std::sqrt(static_cast<double>(shape.elements()))),
          .least_square = 0.02f,
          .grad_scale = 0.75f};
}

// Both operations on a piece.
inline void factored_reference(const exec::FactoredPiece& piece, const exec::FactoredStep& step) {
  const FactoredShape& shape = piece.shape;
  for (int64_t at = 0; at < piece.elements; ++at) {
    const int64_t element = piece.first + at;
    const int64_t i = element % shape.inner, c = element / shape.inner % shape.columns;
    const int64_t r = element / (shape.inner * shape.columns) % shape.rows;
    const int64_t b = element / (shape.inner * shape.columns * shape.rows);
    const int64_t row = (b * shape.rows + r) * shape.inner + i;
    const int64_t column = shape.all_rows() + (b * shape.columns + c) * shape.inner + i;
    float& g = piece.gradients[at];
    const exec::FixedPoint square = exec::fixed_square(g * step.grad_scale, step.units);
    for (const int64_t sum : {row, column}) {
      piece.high[sum] += square.high;
      piece.low[sum] += square.low;
    }
    g = exec::factored_direction(g, piece.factors[row], piece.factors[column], step);
  }
}

// Calls f(first, elements) for the whole tensor and for pieces of it.
template <typename F>
void for_each_piece(const FactoredShape& shape, F f) {
  const int64_t n = shape.elements();
  f(int64_t{0}, n);
  f(n / 3, n / 2);
  f(n - 1, int64_t{1});
}

}  // namespace lockstep::test
