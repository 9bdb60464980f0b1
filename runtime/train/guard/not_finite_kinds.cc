#include "runtime/train/guard/not_finite_kinds.h"

#include <cmath>

#include "runtime/graph/ops/pointwise.h"

namespace lockstep::train {
namespace {

void add_number(double x, NotFiniteKinds* kinds) {
  if (std::isnan(x))
    kinds->nan = true;
  else if (std::isinf(x))
    (x > 0 ? kinds->infinity : kinds->negative_infinity) = true;
}

}  // namespace

void NotFiniteKinds::add(const NotFiniteKinds& other) {
  nan |= other.nan;
  infinity |= other.infinity;
  negative_infinity |= other.negative_infinity;
}

NotFiniteKinds NotFiniteKinds::without(const NotFiniteKinds& known) const {
  return {nan && !known.nan,
          infinity && !known.infinity,
          negative_infinity && !known.negative_infinity};
}

NotFiniteKinds kinds_of(std::span<const std::byte> elements, DType dtype) {
  NotFiniteKinds kinds;
  for_each_number(elements, dtype, [&](double x) { add_number(x, &kinds); });
  return kinds;
}

NotFiniteKinds kinds_of_constants(const graph::Op& op) {
  NotFiniteKinds kinds;
  if (op.kind == graph::OpKind::kPointwise)
    for (const graph::PointwiseInstruction& each :
         op.as<graph::PointwiseAttributes>().program.instructions())
      if (each.function == graph::PointwiseFunction::kConstant) add_number(each.constant, &kinds);
  // It computes nothing: apart from its input's elements, it only writes its padding value.
  if (op.kind == graph::OpKind::kRearrange) kinds = {true, true, true};
  return kinds;
}

}  // namespace lockstep::train
