#include "collectives/reduce/small_all_reduce.h"

namespace lockstep {

SmallAllReduce::SmallAllReduce(const RankCommunicators& communicators,
                               SliceMath& math,
                               const SmallAllReduceLayout& layout,
                               float* memory)
    : memory_(memory),
      buckets_(layout.buckets()),
      reducer_({communicators.slices, communicators.control},
               math,
               {.lanes = layout.lanes,
                .buckets = buckets_,
                .topology = layout.topology,
                .exchanged_elements = layout.exchanged(),
                .norm = false},
               memory,
               memory + layout.buffer_elements()),
      gather_({communicators.slices, communicators.control},
              math,
              layout.topology,
              buckets_,
              {.gathered = reinterpret_cast<std::byte*>(memory)}) {
  for (size_t b = 0; b < buckets_.size(); ++b)
    items_.push_back({static_cast<int>(b), static_cast<size_t>(buckets_[b].begin) * sizeof(float)});
}

void SmallAllReduce::observe(ExchangeObserver* observer) {
  reducer_.observe(observer);
  gather_.observe(observer);
}

void SmallAllReduce::begin_step() {
  reducer_.begin_step();
  gather_.begin_step();
}

void SmallAllReduce::written() {
  for (size_t b = 0; b < buckets_.size(); ++b) reducer_.bucket_ready(static_cast<int>(b));
  reducer_.end_lane();
}

void SmallAllReduce::finish() {
  reducer_.reduce();
  gather_.start(items_);
  gather_.finish();
}

}  // namespace lockstep
