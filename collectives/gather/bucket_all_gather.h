#pragma once
// All-gather of the parameters that each rank owns, bucket by bucket in the order of
// need, while they compute.

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "collectives/sharding.h"
#include "collectives/slice_math.h"
#include "collectives/timed_waits.h"
#include "collectives/topology.h"
#include "runtime/base/dtype.h"

namespace lockstep {

class BucketAllGather {
 public:
  struct Memory {
    std::byte* gathered = nullptr;  // where the ranks share memory, the node's common()
    // Where this rank's parts are copied from: one after the other; null: they are in gathered.
    const std::byte* owned = nullptr;
    // Or rounded from, to `wire`, kBF16 or kF16: flat.
    const float* floats = nullptr;
    DType wire = DType::kBF16;
    size_t element_bytes = sizeof(float);
  };
  // All borrowed.
  BucketAllGather(const RankCommunicators& communicators,
                  SliceMath& math,
                  const Topology& topology,
                  std::vector<Range> buckets,
                  const Memory& memory);

  // Is told of every bucket, and where it begins, when all of it is there; from now on, empty: nobody.
  using OnArrival = std::function<void(int bucket, const std::byte* gathered)>;
  void on_arrival(OnArrival told) { on_arrival_ = std::move(told); }
  // Begins to gather the items, borrowed, in this order, once those before are all there.
  void start(std::span<const GatherItem> items);
  // Instead: all of them are there.
  void skip(std::span<const GatherItem> items);
  // Returns once the first `count` items are there.
  void need(size_t count);
  void finish() { need(items_.size()); }
  // Between ops: moves what is under way.
  void progress() {
    if (done_ < started_) communicator_.progress();
  }
  // Reports to it, borrowed, from now on; null: to none.
  void observe(ExchangeObserver* observer) { waits_.observe(observer); }
  // Milliseconds that the host spent waiting for other ranks since begin_step().
  void begin_step() { waits_.clear(); }
  double exposed_ms() const { return waits_.ms(); }

 private:
  struct Pending {
    size_t step = 0;  // under way
    Arrival arrival = {};
    double start_ms = 0;  // of the first step, while somebody observes
  };
  int64_t elements_of(const GatherItem& item) const {
    return buckets_[static_cast<size_t>(item.bucket)].size();
  }
  bool may_begin(const GatherItem& item) const;
  void begin_more();
  void fill_own_part(const GatherItem& item);
  void start_step(size_t place, size_t step);
  void finish_steps(size_t place, size_t steps);
  Pending& pending(size_t place) { return pending_[place % pending_.size()]; }

  Communicator& communicator_;
  NodeMemory* node_;
  SliceMath& math_;
  TimedWaits waits_;
  OnArrival on_arrival_;
  std::vector<Range> buckets_;
  Memory memory_;
  int ranks_, part_;  // of each bucket, this rank's
  std::vector<GatherStep> steps_;
  std::span<const GatherItem> items_;
  size_t started_ = 0, done_ = 0;
  int64_t most_elements_, elements_ = 0;  // that may be under way, and are
  int last_turn_ = 0;                     // that may begin
  std::vector<Pending> pending_;          // a ring of as many as may be under way
};

}  // namespace lockstep
