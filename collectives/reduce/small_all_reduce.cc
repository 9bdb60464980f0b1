#include "collectives/reduce/small_all_reduce.h"

namespace lockstep::collectives {

SmallAllReduce::SmallAllReduce(const RankCommunicators& communicators,
                               SliceMath& math,
                               const SmallAllReduceLayout& layout,
                               float* memory)
    : memory_(memory),
      buckets_(layout.buckets()),
      exchange_({.communicators = {communicators.slices, communicators.control},
                 .math = math,
                 .shares = layout.shares(),
                 .topology = layout.topology,
                 .gradients = {.data = memory, .elements = layout.padded(), .buckets = buckets_},
                 .measures = {.norm = false}},
                {.staging = {memory + layout.buffer_elements(), layout.exchanged()}}),
      gather_({communicators.slices, communicators.control},
              math,
              layout.topology,
              buckets_,
              {.gathered = reinterpret_cast<std::byte*>(memory)}) {
  for (size_t b = 0; b < buckets_.size(); ++b)
    items_.push_back({static_cast<int>(b), static_cast<size_t>(buckets_[b].begin) * sizeof(float)});
}

void SmallAllReduce::observe(ExchangeObserver* observer) {
  exchange_.observe(observer);
  gather_.observe(observer);
}

void SmallAllReduce::begin_step() {
  exchange_.begin_step(nullptr);
  gather_.begin_step();
}

void SmallAllReduce::written() {
  for (size_t b = 0; b < buckets_.size(); ++b) exchange_.bucket_ready(static_cast<int>(b));
  exchange_.end_lane();
}

void SmallAllReduce::finish() {
  exchange_.reduce();
  gather_.start(items_);
  gather_.finish();
}

}  // namespace lockstep::collectives
