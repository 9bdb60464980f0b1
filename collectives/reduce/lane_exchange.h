#pragma once
// Each lane is summed across the ranks at once, for ZeRO stages 2 and 3.
//
// The ranks run neighbouring lanes at the same time. As soon as a bucket of these is complete, its
// parts are exchanged, and each rank adds its own part to the sums of the lanes before. So no rank
// has a full buffer of gradients: a bucket's memory is reused as soon as the bucket is summed. In
// return a rank sends its gradients once for every lane.

#include "collectives/reduce/level_exchange.h"

namespace lockstep::collectives {

class LaneExchange final : public LevelExchange {
 public:
  struct Options {
    StagingMemory staging;
    DType wire = DType::kF32;  // see WireRounding; without residuals
  };
  // setup.sums must be packed.
  LaneExchange(GradientExchangeSetup setup, const Options& options);

  float* lane_gradients() override { return gradients_.data; }
  void bucket_ready(int bucket) override;

 private:
  float* place_of(int bucket, int turn, size_t sum) override;
  void summed(int bucket, int turn) override;

  std::vector<std::vector<ExchangeLevel>> levels_;  // by turn
  SumSchedule schedule_;
  std::vector<const void*> terms_;  // of a pass
};

}  // namespace lockstep::collectives
