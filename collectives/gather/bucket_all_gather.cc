// A pipeline over items_, which every rank starts and completes in the same order:
//
//   items_      0 ... done_ - 1 | done_ ... started_ - 1 | started_ ... ready_ - 1 | ready_ ...
//                   gathered    |       in flight        |       not started       | parts missing
//
// An item takes steps_.size() steps, the levels of the topology in the opposite order of a
// reduction: an all-gather between the nodes, then one within the node. If the ranks of a node
// share memory, the owners have written to common() already, and the last step is only a signal and
// a wait.
//
// begin_more() starts items that are ready while all three limits allow it (may_begin): the memory
// of the item's turn is free again (turn <= last_turn_), pending_ has a free slot, and at most
// max_elements_ elements are in flight. wait_for(count) completes items in order. Before it waits
// for the last step of item done_, it brings the next item to its last step as well, so that this
// step runs while the ops that need item done_ compute.
//
// Invariant: what is started when depends only on the sizes of the buckets and on the calls, never
// on timing. Otherwise the ranks would start operations in different orders, and the communicator
// would match the wrong ones. An item always fits when nothing is in flight, as max_elements_ is at
// least the largest bucket; so there is no deadlock.
#include "collectives/gather/bucket_all_gather.h"

#include <algorithm>
#include <utility>

#include "collectives/shm/prefetch.h"
#include "runtime/base/error.h"

namespace lockstep::collectives {

BucketAllGather::BucketAllGather(const RankCommunicators& communicators,
                                 SliceMath& math,
                                 const Topology& topology,
                                 std::vector<Range> buckets,
                                 const Memory& memory)
    : communicator_(communicators.slices),
      node_(communicators.node),
      math_(math),
      waits_(communicators.slices, communicators.node),
      buckets_(std::move(buckets)),
      memory_(memory),
      ranks_(topology.ranks()),
      part_(topology.part_of(communicators.control.rank())),
      steps_(topology.gather_steps(communicators.control.rank())) {
  LOCKSTEP_CHECK(communicator_.size() == ranks_);
  LOCKSTEP_CHECK(node_ == nullptr ||
                 (memory.gathered == node_->common() && memory.owned == nullptr));
  // Within a node all buckets may be in flight: nothing is sent.
  const bool only_signals = node_ != nullptr && steps_.size() == 1;
  pending_.resize(only_signals ? buckets_.size() : kMaxGathersInFlight);
  max_elements_ = only_signals
                      ? buckets_.back().end
                      : kGathersInFlight * std::max(largest_bucket(buckets_), kUsualBucketElements);
}

void BucketAllGather::start(std::span<const GatherItem> items, size_t ready) {
  LOCKSTEP_CHECK(done_ == started_);
  items_ = items;
  ready_ = ready;
  last_turn_ = 0;
  started_ = done_ = 0;
  elements_ = 0;
  if (ranks_ == 1) started_ = done_ = items.size();
  begin_more();
}

void BucketAllGather::make_ready(size_t ready) {
  LOCKSTEP_CHECK(ready_ <= ready && ready <= items_.size());
  ready_ = ready;
  begin_more();
}

void BucketAllGather::skip(std::span<const GatherItem> items) {
  LOCKSTEP_CHECK(done_ == started_);
  items_ = items;
  ready_ = started_ = done_ = items.size();
}

bool BucketAllGather::may_begin(const GatherItem& item) const {
  return item.turn <= last_turn_ && started_ < done_ + pending_.size() &&
         elements_ + elements_of(item) <= max_elements_;
}

// Starts as many items as the limits allow.
void BucketAllGather::begin_more() {
  while (started_ < ready_ && may_begin(items_[started_])) {
    elements_ += elements_of(items_[started_]);
    start_step(started_++, 0);
  }
}

// Copies this rank's part to its offset in the gathered bucket.
void BucketAllGather::fill_own_part(const GatherItem& item) {
  const Range& bucket = buckets_[static_cast<size_t>(item.bucket)];
  const Range mine = part_of(bucket, part_, ranks_);
  const auto bytes_of = [&](int64_t elements) {
    return static_cast<size_t>(elements) * memory_.element_bytes;
  };
  std::byte* const to = memory_.gathered + item.offset + bytes_of(mine.begin - bucket.begin);
  if (memory_.floats != nullptr)
    math_.pack(memory_.floats + mine.begin, memory_.wire, to, mine.size());
  if (memory_.owned != nullptr)
    math_.copy(memory_.owned + bytes_of(bucket.begin / ranks_), to, bytes_of(mine.size()));
}

void BucketAllGather::start_step(size_t index, size_t step) {
  Pending& now = pending(index);
  now.step = step;
  if (step == 0 && waits_.observer() != nullptr) now.start_ms = now_ms();
  const GatherItem& item = items_[index];
  if (node_ != nullptr && step + 1 == steps_.size()) {
    now.arrival = waits_.signal(NodeMemory::Event::kParameters,
                                static_cast<size_t>(elements_of(item)) * memory_.element_bytes);
    return;
  }
  if (step == 0) fill_own_part(item);
  std::byte* const to = memory_.gathered + item.offset;
  const auto part = static_cast<size_t>(elements_of(item) / ranks_) * memory_.element_bytes;
  const GatherStep& gather = steps_[step];
  FlightRecorder::here().set_bucket(item.bucket);
  now.arrival.handle =
      communicator_.start_all_gather(to + static_cast<size_t>(gather.first_part) * part,
                                     static_cast<size_t>(gather.slot_parts) * part,
                                     gather.group);
}

// Waits until the first `steps` steps of an item are done. After each one, starts the next step if
// there is one.
void BucketAllGather::finish_steps(size_t index, size_t steps) {
  Pending& now = pending(index);
  const int number = items_[index].bucket;
  while (now.step < steps) {
    const double end_ms = waits_.wait(now.arrival, ExchangeObserver::Wait::kGather, number);
    if (node_ != nullptr && now.step + 1 == steps_.size())
      prefetch_written(memory_.gathered + items_[index].offset,
                       static_cast<size_t>(elements_of(items_[index])) * memory_.element_bytes);
    if (++now.step < steps_.size()) {
      start_step(index, now.step);
    } else if (ExchangeObserver* observer = waits_.observer()) {
      const auto elements = static_cast<size_t>(elements_of(items_[index]));
      observer->gathered(number, elements * memory_.element_bytes, now.start_ms, end_ms);
    }
  }
}

void BucketAllGather::wait_for(size_t count) {
  if (count <= done_) return;
  LOCKSTEP_CHECK(count <= ready_);
  last_turn_ = items_[count - 1].turn + 1;
  begin_more();
  while (done_ < count) {
    // The last step of the next item runs while the ops that need this item compute.
    for (size_t next = done_; next < std::min(done_ + 2, started_); ++next)
      finish_steps(next, steps_.size() - 1);
    finish_steps(done_, steps_.size());
    if (on_arrival_) on_arrival_(items_[done_].bucket, memory_.gathered + items_[done_].offset);
    elements_ -= elements_of(items_[done_++]);
    begin_more();
  }
}

}  // namespace lockstep::collectives
