#pragma once
// All-gather of summed gradients, bucket by bucket, for ranks that each update all parameters. Some
// buckets are gathered as soon as the ranks have summed their parts, while earlier layers are still
// being differentiated; the others during the next forward pass.

#include <functional>
#include <span>
#include <vector>

#include "collectives/gather/bucket_all_gather.h"
#include "runtime/base/dtype.h"

namespace lockstep::collectives {

class SumAllGather {
 public:
  // `sums` has this rank's parts of the buckets; those that travel as `wire` are rounded to it
  // already. `staging` is the buffer of staged_gathers(); null if none do. Both are borrowed.
  struct Memory {
    float* sums = nullptr;  // flat
    std::byte* staging = nullptr;
    DType wire = DType::kF32;
  };
  // The buckets gathered at once, in the order in which they are summed: those sent as Memory::wire
  // through the staging buffer, and those sent as floats from `sums`. And the later ones, all sent
  // as Memory::wire. Borrowed.
  struct Items {
    std::span<const GatherItem> rounded, floats, later;
  };

  SumAllGather(const RankCommunicators& communicators,
               SliceMath& math,
               const Topology& topology,
               const std::vector<Range>& buckets,
               const Memory& memory,
               const Items& items);
  SumAllGather(const SumAllGather&) = delete;
  SumAllGather& operator=(const SumAllGather&) = delete;

  void begin_step();
  // This rank's part of the bucket is summed. If the bucket is gathered at once, its gather starts
  // now or, if there is no memory for it, in a later call. May complete an older gather.
  // Collective.
  void add_bucket(int bucket);
  // Completes the gathers at once: `sums` has all parts of these buckets.
  void finish();
  // After finish(): starts the later gathers. Calls `arrived` with each bucket when `sums` has all
  // parts of it. They must be complete before the next add_bucket().
  void start_later(std::function<void(int bucket)> arrived);
  // The later gathers. An op that reads a bucket's parameters waits for its gather.
  BucketAllGather& later() { return later_; }

  // The same as in BucketAllGather.
  void observe(ExchangeObserver* observer);
  double exposed_ms() const {
    return rounded_.exposed_ms() + floats_.exposed_ms() + later_.exposed_ms();
  }

 private:
  void complete_rounded();
  void unpack(int bucket, const std::byte* gathered);

  SliceMath& math_;
  std::vector<Range> buckets_;
  Memory memory_;
  Items items_;
  BucketAllGather rounded_, floats_, later_;
  std::function<void(int bucket)> arrived_;  // of the later ones
  // Buckets of this step: all that are summed, and those of them that are gathered at once.
  size_t summed_ = 0, summed_rounded_ = 0, summed_floats_ = 0;
};

}  // namespace lockstep::collectives
