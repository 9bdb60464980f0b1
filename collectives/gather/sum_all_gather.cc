#include "collectives/gather/sum_all_gather.h"

#include <algorithm>

namespace lockstep::collectives {

SumAllGather::SumAllGather(const RankCommunicators& communicators,
                           SliceMath& math,
                           const Topology& topology,
                           const std::vector<Range>& buckets,
                           const Memory& memory,
                           const Items& items)
    : math_(math),
      buckets_(buckets),
      memory_(memory),
      items_(items),
      rounded_(communicators,
               math,
               topology,
               buckets,
               {.gathered = memory.staging,
                .floats = memory.sums,
                .wire = memory.wire,
                .element_bytes = size_of(memory.wire)}),
      floats_(communicators,
              math,
              topology,
              buckets,
              {.gathered = reinterpret_cast<std::byte*>(memory.sums)}) {}

void SumAllGather::begin_step() {
  summed_ = 0;
  rounded_.begin_step();
  floats_.begin_step();
  rounded_.start(items_.rounded, 0);
  floats_.start(items_.floats, 0);
}

void SumAllGather::observe(ExchangeObserver* observer) {
  rounded_.observe(observer);
  floats_.observe(observer);
}

void SumAllGather::add_bucket() {
  const size_t rounded = std::min(++summed_, items_.rounded.size());
  rounded_.make_ready(rounded);
  while (rounded_.started() < rounded) complete_rounded();
  const size_t floats = summed_ - rounded;
  floats_.make_ready(floats);
  while (floats_.started() < floats) floats_.wait_for(floats_.done() + 1);
}

void SumAllGather::finish() {
  while (rounded_.done() < items_.rounded.size()) complete_rounded();
  floats_.finish();
}

// Unpacks the oldest bucket in flight.
void SumAllGather::complete_rounded() {
  const GatherItem& item = items_.rounded[rounded_.done()];
  rounded_.wait_for(rounded_.done() + 1);  // may also start those of the next turn
  const Range& bucket = buckets_[static_cast<size_t>(item.bucket)];
  const void* const slot = memory_.staging + item.offset;
  math_.tree_sum({.arrays = &slot, .count = 1, .wire = memory_.wire, .travelled = true},
                 memory_.sums + bucket.begin,
                 bucket.size());
}

}  // namespace lockstep::collectives
