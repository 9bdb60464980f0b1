#pragma once
// Which parts of the flat buffer of gradients travel as two thin matrices each, and where those
// lie: pure arithmetic.

#include <cstdint>
#include <vector>

#include "collectives/power_sgd/power_sgd_math.h"
#include "collectives/reduce/small_all_reduce_layout.h"

namespace lockstep {

// A gradient that is a matrix, in elements of the flat buffer.
struct FlatMatrix {
  int64_t offset = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};

struct PowerSgdLayout {
  struct Matrix {
    int64_t offset = 0;  // in the flat buffer
    PowerSgdShape shape;
    int64_t left = 0;   // among the lefts, and
    int64_t right = 0;  // among the rights: where its factors begin
  };
  int groups = 0;  // of lanes, each of which has residuals
  std::vector<Matrix> matrices;
  // What travels as it is, behind the lefts, one range after the other.
  std::vector<Range> exact;
  int64_t exact_at = 0;
  int64_t left_elements = 0;  // with what is exact
  int64_t right_elements = 0;

  // Their sums over the groups.
  SmallAllReduceLayout lefts(const Topology& topology) const {
    return {groups, topology, left_elements};
  }
  SmallAllReduceLayout rights(const Topology& topology) const {
    return {groups, topology, right_elements};
  }
  // Where the rights' memory begins, behind that of the lefts, and floats that both need.
  int64_t rights_at(const Topology& topology) const { return lefts(topology).memory_elements(); }
  int64_t factor_elements(const Topology& topology) const {
    return lefts(topology).memory_elements() + rights(topology).memory_elements();
  }
};

// Of a flat buffer of `elements`, those matrices, in the order of their offsets, that are at least
// twice as long as their factors.
PowerSgdLayout power_sgd_layout(const std::vector<FlatMatrix>& matrices,
                                int64_t elements,
                                int rank,
                                int groups);

}  // namespace lockstep
