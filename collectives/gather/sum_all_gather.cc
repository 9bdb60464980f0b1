#include "collectives/gather/sum_all_gather.h"

#include <utility>

#include "runtime/base/error.h"

namespace lockstep::collectives {
namespace {

// If there is no memory for a gather, the rank waits for the oldest one, but only after so many
// more buckets: by then it is likely to be done.
constexpr size_t kLag = 24;

BucketAllGather::Memory through_staging(const SumAllGather::Memory& memory) {
  return {.gathered = memory.staging,
          .floats = memory.sums,
          .wire = memory.wire,
          .element_bytes = size_of(memory.wire)};
}

BucketAllGather::Memory in_place(const SumAllGather::Memory& memory) {
  return {.gathered = reinterpret_cast<std::byte*>(memory.sums)};
}

}  // namespace

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
      rounded_(communicators, math, topology, buckets, through_staging(memory)),
      floats_(communicators, math, topology, buckets, in_place(memory)),
      later_(communicators,
             math,
             topology,
             buckets,
             memory.wire == DType::kF32 ? in_place(memory) : through_staging(memory)) {
  later_.on_arrival([this](int bucket, const std::byte* gathered) {
    if (memory_.wire != DType::kF32) unpack(bucket, gathered);
    arrived_(bucket);
  });
  later_.skip(items.later);
}

void SumAllGather::begin_step() {
  rounded_.begin_step();
  floats_.begin_step();
  later_.begin_step();
}

void SumAllGather::observe(ExchangeObserver* observer) {
  rounded_.observe(observer);
  floats_.observe(observer);
  later_.observe(observer);
}

void SumAllGather::add_bucket(int bucket) {
  ++summed_;
  const auto is_next = [&](std::span<const GatherItem> items, size_t summed) {
    return summed < items.size() && items[summed].bucket == bucket;
  };
  if (is_next(items_.rounded, summed_rounded_)) {
    if (summed_rounded_ == 0) rounded_.start(items_.rounded, 0);
    rounded_.make_ready(++summed_rounded_);
  } else if (is_next(items_.floats, summed_floats_)) {
    if (summed_floats_ == 0) floats_.start(items_.floats, 0);
    floats_.make_ready(++summed_floats_);
  }
  if (rounded_.started() < summed_rounded_ && rounded_.done() + kLag < summed_) complete_rounded();
  if (floats_.started() < summed_floats_ && floats_.done() + kLag < summed_)
    floats_.wait_for(floats_.done() + 1);
}

void SumAllGather::finish() {
  LOCKSTEP_CHECK(summed_rounded_ == items_.rounded.size() &&
                 summed_floats_ == items_.floats.size());
  while (summed_rounded_ > 0 && rounded_.done() < summed_rounded_) complete_rounded();
  if (summed_floats_ > 0) floats_.finish();
  summed_ = summed_rounded_ = summed_floats_ = 0;
}

void SumAllGather::start_later(std::function<void(int bucket)> arrived) {
  arrived_ = std::move(arrived);
  later_.start(items_.later);
}

// Unpacks the oldest bucket in flight.
void SumAllGather::complete_rounded() {
  const GatherItem& item = items_.rounded[rounded_.done()];
  rounded_.wait_for(rounded_.done() + 1);  // may also start those of the next turn
  unpack(item.bucket, memory_.staging + item.offset);
}

void SumAllGather::unpack(int bucket, const std::byte* gathered) {
  const Range& range = buckets_[static_cast<size_t>(bucket)];
  const void* const slot = gathered;
  math_.tree_sum({.arrays = &slot, .count = 1, .wire = memory_.wire, .travelled = true},
                 memory_.sums + range.begin,
                 range.size());
}

}  // namespace lockstep::collectives
