#pragma once
// The ranks exchange an approximation of their gradients: see compressed_all_reduce.h.

#include "collectives/reduce/compressed_all_reduce.h"
#include "collectives/reduce/gradient_exchange.h"
#include "collectives/reduce/lane_sums.h"

namespace lockstep::collectives {

class CompressedExchange final : public GradientExchange {
 public:
  // The sums lie in the gradients; after reduce() all ranks have all of them. shares.unit lanes are
  // a group. `compressed` is borrowed.
  CompressedExchange(GradientExchangeSetup setup, CompressedAllReduce& compressed);

  float* lane_gradients() override;
  void bucket_ready(int bucket) override;
  void reduce() override;

 private:
  size_t in_flight() const override { return 0; }
  void complete_until(uint64_t /*number*/, int /*bucket*/) override {}
  size_t group_of(int local_lane) const { return static_cast<size_t>(local_lane / shares_.unit); }

  CompressedAllReduce& compressed_;
  // One for each group; if lanes run in turn, all groups use the same buffers.
  std::vector<GradientBuffers> buffers_;
  std::vector<LaneSums> group_sums_;
};

}  // namespace lockstep::collectives
