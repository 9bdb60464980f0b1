#pragma once
// Each rank adds up its neighbouring lanes, then the ranks exchange their sums.

#include <optional>

#include "collectives/reduce/level_exchange.h"

namespace lockstep::collectives {

class TreeExchange final : public LevelExchange {
 public:
  struct Options {
    StagingMemory staging;
    WireRounding wire = {};
    // Every rank writes its sums to the gradient buffers of all ranks, so that after reduce() all
    // ranks have all sums. Needs one node with shared memory, and the sums in the gradients.
    bool replicated_sums = false;
  };
  TreeExchange(GradientExchangeSetup setup, const Options& options);

  float* lane_gradients() override { return lane_sums_.buffer_of(lane_); }
  void bucket_ready(int bucket) override;
  void reduce() override;

 private:
  float* place_of(int bucket, int turn, size_t sum) override;
  void complete(
      TreeSumTerms& terms, int bucket, size_t level, size_t sum, const Range& mine) override;
  void summed(int bucket, int turn) override;
  bool announces_reads(int bucket) const override;

  std::vector<ExchangeLevel> levels_;
  std::optional<ErrorFeedbackLayout> feedback_;
  WireRounding wire_;
  bool replicated_sums_;
  LaneSums lane_sums_;
  std::vector<float*> copies_;  // the other ranks' places for a sum
};

}  // namespace lockstep::collectives
