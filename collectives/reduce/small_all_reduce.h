#pragma once
// All-reduce over all lanes of small buffers of floats, in the order of the lanes' tree, on every
// rank.

#include <vector>

#include "collectives/gather/bucket_all_gather.h"
#include "collectives/reduce/reducer.h"
#include "collectives/reduce/small_all_reduce_layout.h"

namespace lockstep {

class SmallAllReduce {
 public:
  // `memory`: memory_elements() floats, borrowed; zeros at first.
  SmallAllReduce(const RankCommunicators& communicators,
                 SliceMath& math,
                 const SmallAllReduceLayout& layout,
                 float* memory);

  // Reports to it, borrowed, from now on; null: to none. Buckets are those of the buffers.
  void observe(ExchangeObserver* observer);

  // Nothing is waited for yet.
  void begin_step();
  // Where this rank's next lane writes its floats, and that it has.
  float* next() { return reducer_.lane_gradients(); }
  void written();
  // All-gathers the sum. All ranks together.
  void finish();
  // Until the next step's first next(); zeros before the first one's.
  float* sum() const { return memory_; }
  // Milliseconds that the host spent waiting for other ranks since begin_step().
  double exposed_ms() const { return reducer_.exposed_ms() + gather_.exposed_ms(); }

 private:
  float* memory_;
  std::vector<Range> buckets_;
  std::vector<GatherItem> items_;
  Reducer reducer_;
  BucketAllGather gather_;
};

}  // namespace lockstep
