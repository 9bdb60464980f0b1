#include "collectives/sum_gather.h"

namespace lockstep {

SumGather::SumGather(const RankCommunicators& communicators,
                     SliceMath& math,
                     const Topology& topology,
                     const std::vector<Range>& buckets,
                     const Memory& memory)
    : math_(math),
      buckets_(buckets),
      memory_(memory),
      ranks_(topology.ranks()),
      part_(topology.part_of(communicators.control.rank())),
      gather_(communicators,
              math,
              topology,
              buckets,
              {.gathered = memory.staging, .element_bytes = size_of(memory.wire)}) {}

void SumGather::run(std::span<const GatherItem> items) {
  for (size_t i = 0; i <= items.size(); ++i) {
    if (i < items.size()) pack(items[i]);
    if (i == 0) {
      gather_.start(items);
    } else {
      gather_.need(i);  // and begins the next
      unpack(items[i - 1]);
    }
  }
}

// This rank's part, in its place in the staging.
void SumGather::pack(const GatherItem& item) {
  const Range& bucket = buckets_[static_cast<size_t>(item.bucket)];
  const Range mine = part_of(bucket, part_, ranks_);
  std::byte* const slot = memory_.staging + item.offset;
  math_.pack(memory_.sums + mine.begin,
             memory_.wire,
             slot + static_cast<size_t>(mine.begin - bucket.begin) * size_of(memory_.wire),
             mine.size());
}

void SumGather::unpack(const GatherItem& item) {
  const Range& bucket = buckets_[static_cast<size_t>(item.bucket)];
  const void* const slot = memory_.staging + item.offset;
  math_.tree_sum({.arrays = &slot, .count = 1, .wire = memory_.wire, .travelled = true},
                 memory_.sums + bucket.begin,
                 bucket.size());
}

}  // namespace lockstep
