#include "collectives/power_sgd/power_sgd.h"

#include <utility>

namespace lockstep::collectives {

PowerSgd::PowerSgd(const RankCommunicators& communicators,
                   SliceMath& math,
                   PowerSgdProducts& products,
                   Options options,
                   const Memory& memory)
    : math_(math),
      products_(products),
      options_(std::move(options)),
      memory_(memory),
      groups_(LaneShares{options_.layout.groups, options_.topology.ranks()}
                  .of(communicators.control.rank())
                  .count),
      lefts_(communicators, math, options_.layout.lefts(options_.topology), memory.factors),
      rights_(communicators,
              math,
              options_.layout.rights(options_.topology),
              memory.factors + options_.layout.rights_at(options_.topology)) {}

void PowerSgd::begin_step() {
  lefts_.begin_step();
  rights_.begin_step();
}

void PowerSgd::add(int group, const Range& range, const float* sums) {
  float* const residual = residuals(group) + range.begin;
  const void* both[2] = {residual, sums};
  math_.tree_sum({.arrays = both, .count = 2}, residual, range.size());
}

void PowerSgd::finish(float* sums) {
  sum_lefts();
  sum_rights();
  const float share = 1.0f / static_cast<float>(options_.layout.groups);
  for (const Matrix& matrix : options_.layout.matrices) {
    float* const product = sums + matrix.offset;
    products_.product(lefts_.sum() + matrix.left, rights() + matrix.right, matrix.shape, product);
    const int64_t n = matrix.shape.rows * matrix.shape.columns;
    for (int group = 0; group < groups_; ++group)
      products_.subtract(residuals(group) + matrix.offset, product, share, n);
  }
  for_each_exact_range([&](const Range& range, int64_t offset) {
    copy(lefts_.sum() + offset, sums + range.begin, range.size());
    for (int group = 0; group < groups_; ++group)
      math_.fill_zeros(residuals(group) + range.begin, range.size());
  });
}

void PowerSgd::sum_lefts() {
  for (const Matrix& matrix : options_.layout.matrices)
    products_.fill_zero_columns(rights() + matrix.right, matrix.shape.columns, matrix.shape.rank);
  for (int group = 0; group < groups_; ++group) {
    float* const lefts = lefts_.next();
    for (const Matrix& matrix : options_.layout.matrices)
      products_.left(residuals(group) + matrix.offset,
                     rights() + matrix.right,
                     matrix.shape,
                     lefts + matrix.left);
    for_each_exact_range([&](const Range& range, int64_t offset) {
      copy(residuals(group) + range.begin, lefts + offset, range.size());
    });
    lefts_.written();
  }
  lefts_.finish();
  for (const Matrix& matrix : options_.layout.matrices)
    products_.orthonormalize(lefts_.sum() + matrix.left, matrix.shape.rows, matrix.shape.rank);
}

void PowerSgd::sum_rights() {
  for (int group = 0; group < groups_; ++group) {
    float* const rights = rights_.next();
    for (const Matrix& matrix : options_.layout.matrices)
      products_.right(residuals(group) + matrix.offset,
                      lefts_.sum() + matrix.left,
                      matrix.shape,
                      rights + matrix.right);
    rights_.written();
  }
  rights_.finish();
}

template <typename Body>
void PowerSgd::for_each_exact_range(Body body) const {
  int64_t offset = options_.layout.exact_at;
  for (const Range& range : options_.layout.exact) {
    body(range, offset);
    offset += range.size();
  }
}

void PowerSgd::copy(const float* from, float* to, int64_t n) {
  math_.copy(reinterpret_cast<const std::byte*>(from),
             reinterpret_cast<std::byte*>(to),
             static_cast<size_t>(n) * sizeof(float));
}

}  // namespace lockstep::collectives
