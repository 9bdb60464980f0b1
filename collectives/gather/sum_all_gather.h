#pragma once
// All-gather of summed gradients in 16 bits, bucket by bucket, where every rank updates all
// parameters.

#include <span>
#include <vector>

#include "collectives/gather/bucket_all_gather.h"
#include "runtime/base/dtype.h"

namespace lockstep {

class SumAllGather {
 public:
  // Of the buckets' parts, `sums` holds those that this rank has summed, rounded to `wire` already.
  // The staging is for staged_gathers(). Both borrowed.
  struct Memory {
    float* sums = nullptr;  // flat
    std::byte* staging = nullptr;
    DType wire = DType::kBF16;  // or kF16; else nothing may be run
  };

  SumAllGather(const RankCommunicators& communicators,
               SliceMath& math,
               const Topology& topology,
               const std::vector<Range>& buckets,
               const Memory& memory);

  // Gathers all parts of the buckets of items, as staged_gathers() makes them, into sums. All ranks
  // together.
  void run(std::span<const GatherItem> items);

  // As of a BucketAllGather.
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

}  // namespace lockstep
