#pragma once
// Newton-Schulz iterations in double precision, as Muon's authors write them: on the transpose of a
// matrix that has more rows than columns.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/exec/optimizers/newton_schulz.h"

namespace lockstep::test {

// (rows, columns) in double precision.
struct Matrix64 {
  int64_t rows, columns;
  std::vector<double> at;
  double operator()(int64_t i, int64_t j) const { return at[static_cast<size_t>(i * columns + j)]; }
};

inline Matrix64 transposed(const Matrix64& m) {
  Matrix64 t = {m.columns, m.rows, std::vector<double>(m.at.size())};
  for (int64_t i = 0; i < m.rows; ++i)
    for (int64_t j = 0; j < m.columns; ++j) t.at[static_cast<size_t>(j * m.rows + i)] = m(i, j);
  return t;
}

inline Matrix64 product(const Matrix64& a, const Matrix64& b) {
  Matrix64 c = {a.rows, b.columns, std::vector<double>(static_cast<size_t>(a.rows * b.columns))};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t k = 0; k < a.columns; ++k)
      for (int64_t j = 0; j < b.columns; ++j)
        c.at[static_cast<size_t>(i * b.columns + j)] += a(i, k) * b(k, j);
  return c;
}

inline std::vector<double> newton_schulz_reference(std::vector<double> matrix,
                                                   const exec::NewtonSchulz& shape) {
  Matrix64 x = {shape.rows, shape.columns, std::move(matrix)};
  if (shape.tall()) x = transposed(x);
  double squares = 0;
  for (const double value : x.at) squares += value * value;
  for (double& value : x.at) value /= std::max(std::sqrt(squares), 1e-7);
  for (int i = 0; i < shape.iterations; ++i) {
    const Matrix64 gram = product(x, transposed(x));
    Matrix64 factor = product(gram, gram);
    for (size_t k = 0; k < factor.at.size(); ++k)
      factor.at[k] = -4.7750 * gram.at[k] + 2.0315 * factor.at[k];
    const Matrix64 rest = product(factor, x);
    for (size_t k = 0; k < x.at.size(); ++k) x.at[k] = 3.4445 * x.at[k] + rest.at[k];
  }
  if (shape.tall()) x = transposed(x);
  for (double& value : x.at) value *= shape.scale;
  return x.at;
}

// What floats may be off by: each iteration rounds entries of about 1 / sqrt(order), singular
// values at most about 1.2, in chains as long as the matrix' longer side, and widens what came
// before, along the smallest singular values, by at most a = 3.4445.
inline double newton_schulz_tolerance(const exec::NewtonSchulz& shape) {
  const double longer = static_cast<double>(std::max(shape.rows, shape.columns));
  return 0x1p-24 * std::pow(3.4445, shape.iterations) * (4 + std::sqrt(longer)) * shape.scale;
}

}  // namespace lockstep::test
