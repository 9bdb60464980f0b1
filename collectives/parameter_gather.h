#pragma once
// Brings what every rank owns of the parameters to all ranks, bucket by bucket in the order of
// need, while they compute.

#include <cstddef>
#include <span>
#include <vector>

#include "collectives/sharding.h"
#include "collectives/slice_math.h"
#include "collectives/topology.h"
#include "collectives/waits.h"

namespace lockstep {

class ParameterGather {
 public:
  struct Memory {
    std::byte* gathered = nullptr;     // where the ranks share memory, the node's common()
    const std::byte* owned = nullptr;  // this rank's parts one after the other; null: in gathered
    size_t element_bytes = sizeof(float);
  };
  // All borrowed.
  ParameterGather(const RankCommunicators& communicators,
                  SliceMath& math,
                  const Topology& topology,
                  std::vector<Range> buckets,
                  const Memory& memory);

  // Begins to bring the items, borrowed, in this order, once those before are all there.
  void start(std::span<const GatherItem> items);
  // Returns once the first `count` items are there.
  void need(size_t count);
  void finish() { need(items_.size()); }
  // Between ops: moves what is under way.
  void progress() {
    if (done_ < started_) communicator_.progress();
  }
  // Tells it, borrowed, from now on; null: nobody.
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
  void begin_more();
  void start_step(size_t place, size_t step);
  void finish_steps(size_t place, size_t steps);
  Pending& pending(size_t place) { return pending_[place % pending_.size()]; }

  Communicator& communicator_;
  NodeMemory* node_;
  SliceMath& math_;
  Waits waits_;
  std::vector<Range> buckets_;
  Memory memory_;
  int ranks_, part_;  // of each bucket, this rank's
  std::vector<GatherStep> steps_;
  std::span<const GatherItem> items_;
  size_t started_ = 0, done_ = 0;
  int last_turn_ = 0;             // that may begin
  std::vector<Pending> pending_;  // a ring of as many as may be under way
};

}  // namespace lockstep
