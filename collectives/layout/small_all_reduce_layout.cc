#include "collectives/layout/small_all_reduce_layout.h"

#include <algorithm>

#include "collectives/layout/exchange_levels.h"

namespace lockstep::collectives {

int64_t SmallAllReduceLayout::padded() const {
  return padded_elements(std::max<int64_t>(elements, 1), slices(lanes, topology.ranks()));
}

std::vector<Range> SmallAllReduceLayout::buckets() const {
  constexpr int64_t kBucketElements = int64_t{1} << 20;
  return make_buckets({0, padded()}, slices(lanes, topology.ranks()), kBucketElements);
}

int64_t SmallAllReduceLayout::exchanged() const {
  return exchanged_elements(buckets(), InFlightLimit::kSavesMemory);
}

int64_t SmallAllReduceLayout::buffer_elements() const { return shares().buffers() * padded(); }

int64_t SmallAllReduceLayout::memory_elements() const {
  return buffer_elements() + staging_elements(exchanged(), topology, shares(), DType::kF32);
}

}  // namespace lockstep::collectives
