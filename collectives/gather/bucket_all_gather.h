#pragma once
// All-gather of the parameters that each rank owns, bucket by bucket in the order in which the ops
// read them, overlapped with these ops.

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "collectives/exchange/slice_math.h"
#include "collectives/exchange/timed_waits.h"
#include "collectives/layout/sharding.h"
#include "collectives/layout/topology.h"
#include "runtime/base/dtype.h"

namespace lockstep::collectives {

class BucketAllGather {
 public:
  struct Memory {
    std::byte* gathered = nullptr;  // if ranks share memory, NodeMemory::common()
    // The source of this rank's parts, back to back; null: they are in `gathered` already.
    const std::byte* owned = nullptr;
    // Or a flat buffer of floats from which they are rounded to `wire`, kBF16 or kF16.
    const float* floats = nullptr;
    DType wire = DType::kBF16;
    size_t element_bytes = sizeof(float);
  };
  // Borrows everything that is passed by reference or pointer.
  BucketAllGather(const RankCommunicators& communicators,
                  SliceMath& math,
                  const Topology& topology,
                  std::vector<Range> buckets,
                  const Memory& memory);

  // Called with every bucket, and its address, once the bucket is complete; an empty function
  // removes it.
  using OnArrival = std::function<void(int bucket, const std::byte* gathered)>;
  void on_arrival(OnArrival callback) { on_arrival_ = std::move(callback); }
  // Starts gathering the items, borrowed, in this order. All earlier items must be complete.
  void start(std::span<const GatherItem> items) { start(items, items.size()); }
  // The same, but only the first `ready` of them: this rank's parts of the others are not there
  // yet.
  void start(std::span<const GatherItem> items, size_t ready);
  // The parts of the first `ready` items are there. Called by all ranks at the same point.
  void make_ready(size_t ready);
  // The alternative to start() if all items are gathered already.
  void skip(std::span<const GatherItem> items);
  // Returns once the first `count` items are complete.
  void wait_for(size_t count);
  void finish() { wait_for(items_.size()); }
  size_t started() const { return started_; }
  size_t done() const { return done_; }
  // Advances the gathers in flight. Called between ops.
  void progress() {
    if (done_ < started_) communicator_.progress();
  }
  // Sets the observer, borrowed; null removes it.
  void observe(ExchangeObserver* observer) { waits_.observe(observer); }
  // Milliseconds that the host has waited for other ranks since begin_step().
  void begin_step() { waits_.clear(); }
  double exposed_ms() const { return waits_.ms(); }

 private:
  struct Pending {
    size_t step = 0;  // the current one
    Arrival arrival = {};
    double start_ms = 0;  // of the first step, if there is an observer
  };
  int64_t elements_of(const GatherItem& item) const {
    return buckets_[static_cast<size_t>(item.bucket)].size();
  }
  bool may_begin(const GatherItem& item) const;
  void begin_more();
  void fill_own_part(const GatherItem& item);
  void start_step(size_t index, size_t step);
  void finish_steps(size_t index, size_t steps);
  Pending& pending(size_t index) { return pending_[index % pending_.size()]; }

  Communicator& communicator_;
  NodeMemory* node_;
  SliceMath& math_;
  TimedWaits waits_;
  OnArrival on_arrival_;
  std::vector<Range> buckets_;
  Memory memory_;
  int ranks_, part_;  // ranks, and this rank's part of each bucket
  std::vector<GatherStep> steps_;
  std::span<const GatherItem> items_;
  size_t ready_ = 0, started_ = 0, done_ = 0;
  int64_t max_elements_, elements_ = 0;  // limit of elements in flight, and their number
  int last_turn_ = 0;                    // that may start
  std::vector<Pending> pending_;         // ring of the items in flight
};

}  // namespace lockstep::collectives
