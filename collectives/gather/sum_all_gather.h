#pragma once
// All-gather of summed gradients, bucket by bucket, for ranks that each update all parameters. The
// gather of a bucket starts as soon as the ranks have summed their parts, while earlier layers are
// still being differentiated.

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
  // The first buckets, sent as Memory::wire through the staging buffer, and the others, sent as
  // floats from `sums`. Borrowed.
  struct Items {
    std::span<const GatherItem> rounded, floats;
  };

  SumAllGather(const RankCommunicators& communicators,
               SliceMath& math,
               const Topology& topology,
               const std::vector<Range>& buckets,
               const Memory& memory,
               const Items& items);

  void begin_step();
  // This rank's part of the next bucket is summed: starts its gather. If there is no memory for it,
  // completes older ones first. Collective.
  void add_bucket();
  // Completes the gathers of all buckets: `sums` has all parts.
  void finish();

  // The same as in BucketAllGather.
  void observe(ExchangeObserver* observer);
  double exposed_ms() const { return rounded_.exposed_ms() + floats_.exposed_ms(); }

 private:
  void complete_rounded();

  SliceMath& math_;
  std::vector<Range> buckets_;
  Memory memory_;
  Items items_;
  BucketAllGather rounded_, floats_;
  size_t summed_ = 0;  // buckets of this step
};

}  // namespace lockstep::collectives
