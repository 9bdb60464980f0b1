#pragma once
// All-reduce of small buffers of floats over all lanes, in the order of the lanes' tree. Every rank
// gets the sum.

#include <vector>

#include "collectives/gather/bucket_all_gather.h"
#include "collectives/layout/small_all_reduce_layout.h"
#include "collectives/reduce/tree_exchange.h"

namespace lockstep::collectives {

class SmallAllReduce {
 public:
  // `memory` has memory_elements() floats, all 0, borrowed.
  SmallAllReduce(const RankCommunicators& communicators,
                 SliceMath& math,
                 const SmallAllReduceLayout& layout,
                 float* memory);

  // Sets the observer, borrowed; null removes it. The buckets that it sees are those of these
  // buffers.
  void observe(ExchangeObserver* observer);

  // Does not wait for other ranks.
  void begin_step();
  // The buffer for the floats of this rank's next lane; call written() once they are there.
  float* next() { return exchange_.lane_gradients(); }
  void written();
  // Sums over all lanes and gathers the sum. Collective.
  void finish();
  // The sum, valid until next() of the following step; zeros before the first finish().
  float* sum() const { return memory_; }
  // Milliseconds that the host has waited for other ranks since begin_step().
  double exposed_ms() const { return exchange_.exposed_ms() + gather_.exposed_ms(); }

 private:
  float* memory_;
  std::vector<Range> buckets_;
  std::vector<GatherItem> items_;
  TreeExchange exchange_;
  BucketAllGather gather_;
};

}  // namespace lockstep::collectives
