#pragma once
// All-gather of summed gradients in 16 bits, bucket by bucket, for ranks that each update all
// parameters.

#include <span>
#include <vector>

#include "collectives/gather/bucket_all_gather.h"
#include "runtime/base/dtype.h"

namespace lockstep::collectives {

class SumAllGather {
 public:
  // `sums` has this rank's parts of the buckets, summed and rounded to `wire` already. `staging` is
  // the buffer of staged_gathers(). Both are borrowed.
  struct Memory {
    float* sums = nullptr;  // flat
    std::byte* staging = nullptr;
    DType wire = DType::kBF16;  // or kF16; with another type run() must not be called
  };

  SumAllGather(const RankCommunicators& communicators,
               SliceMath& math,
               const Topology& topology,
               const std::vector<Range>& buckets,
               const Memory& memory);

  // Gathers all parts of the buckets of `items`, made by staged_gathers(), into `sums`. Collective.
  void run(std::span<const GatherItem> items);

  // The same as in BucketAllGather.
  void observe(ExchangeObserver* observer) { gather_.observe(observer); }
  void begin_step() { gather_.begin_step(); }
  double exposed_ms() const { return gather_.exposed_ms(); }

 private:
  void unpack(const GatherItem& item);

  SliceMath& math_;
  std::vector<Range> buckets_;
  Memory memory_;
  BucketAllGather gather_;
};

}  // namespace lockstep::collectives
