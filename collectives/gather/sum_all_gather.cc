#include "collectives/gather/sum_all_gather.h"

namespace lockstep::collectives {

SumAllGather::SumAllGather(const RankCommunicators& communicators,
                           SliceMath& math,
                           const Topology& topology,
                           const std::vector<Range>& buckets,
                           const Memory& memory)
    : math_(math),
      buckets_(buckets),
      memory_(memory),
      gather_(communicators,
              math,
              topology,
              buckets,
              {.gathered = memory.staging,
               .floats = memory.sums,
               .wire = memory.wire,
               .element_bytes = size_of(memory.wire)}) {}

void SumAllGather::run(std::span<const GatherItem> items) {
  gather_.start(items);
  for (size_t i = 0; i < items.size(); ++i) {
    gather_.wait_for(i + 1);  // also starts those of the next turn
    unpack(items[i]);
  }
}

void SumAllGather::unpack(const GatherItem& item) {
  const Range& bucket = buckets_[static_cast<size_t>(item.bucket)];
  const void* const slot = memory_.staging + item.offset;
  math_.tree_sum({.arrays = &slot, .count = 1, .wire = memory_.wire, .travelled = true},
                 memory_.sums + bucket.begin,
                 bucket.size());
}

}  // namespace lockstep::collectives
