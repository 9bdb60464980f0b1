#include "collectives/whole_sum.h"

namespace lockstep {

WholeSum::WholeSum(const RankCommunicators& communicators,
                   SliceMath& math,
                   const WholeSumLayout& layout,
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

void WholeSum::observe(ExchangeObserver* observer) {
  reducer_.observe(observer);
  gather_.observe(observer);
}

void WholeSum::begin_step() {
  reducer_.begin_step();
  gather_.begin_step();
}

void WholeSum::written() {
  for (size_t b = 0; b < buckets_.size(); ++b) reducer_.bucket_ready(static_cast<int>(b));
  reducer_.end_lane();
}

void WholeSum::finish() {
  reducer_.reduce();
  gather_.start(items_);
  gather_.finish();
}

}  // namespace lockstep
