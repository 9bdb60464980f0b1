#pragma once
// Which parts of the flat gradient buffer travel as two thin matrices each, and where the factors
// are stored. Pure arithmetic.

#include <cstdint>
#include <vector>

#include "collectives/layout/small_all_reduce_layout.h"
#include "collectives/power_sgd/power_sgd_math.h"

namespace lockstep::collectives {

// A gradient that is a matrix; its place in the flat buffer, in elements.
struct FlatMatrix {
  int64_t offset = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t padding = 0;  // elements after it that are always 0, and need not travel
};

struct PowerSgdLayout {
  struct Matrix {
    int64_t offset = 0;  // in the flat buffer
    PowerSgdShape shape;
    int64_t left = 0;   // offset of its left factor,
    int64_t right = 0;  // and of its right one
  };
  int groups = 0;  // groups of lanes; each has residuals
  std::vector<Matrix> matrices;
  // The ranges that travel uncompressed, stored behind the left factors in this order.
  std::vector<Range> exact;
  int64_t exact_at = 0;
  int64_t left_elements = 0;  // includes the uncompressed ranges
  int64_t right_elements = 0;

  // The sums of the factors over the groups.
  SmallAllReduceLayout lefts(const Topology& topology) const {
    return {groups, topology, left_elements};
  }
  SmallAllReduceLayout rights(const Topology& topology) const {
    return {groups, topology, right_elements};
  }
  // The memory of the right factors begins at rights_at(), behind that of the left factors; both
  // need factor_elements() floats.
  int64_t rights_at(const Topology& topology) const { return lefts(topology).memory_elements(); }
  int64_t factor_elements(const Topology& topology) const {
    return lefts(topology).memory_elements() + rights(topology).memory_elements();
  }
};

// Compresses those of `matrices`, in the order of their offsets, that have at least twice as many
// elements as their factors. The rest of a flat buffer of `elements` stays uncompressed.
PowerSgdLayout power_sgd_layout(const std::vector<FlatMatrix>& matrices,
                                int64_t elements,
                                int rank,
                                int groups);

}  // namespace lockstep::collectives
