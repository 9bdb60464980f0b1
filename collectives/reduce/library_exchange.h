#pragma once
// Sums in an order that the library chooses (comm.order: FAST): a reduce-scatter of MPI or NCCL.

#include "collectives/reduce/gradient_exchange.h"
#include "collectives/reduce/in_flight.h"
#include "collectives/reduce/lane_sums.h"

namespace lockstep::collectives {

class LibraryExchange final : public GradientExchange {
 public:
  // For ranks that share no memory. If each lane is summed at once, setup.sums must be packed.
  LibraryExchange(GradientExchangeSetup setup, const StagingMemory& staging);

  void begin_step(TransferChecksums* transfers) override;
  float* lane_gradients() override;
  void bucket_ready(int bucket) override;
  void reduce() override;

 private:
  struct Exchange {
    int bucket = -1;
    int turn = 0;
    float* received = nullptr;
    Arrival arrival = {};
    double start_ms = 0;
  };
  size_t in_flight() const override { return exchanges_.count(); }
  void complete_until(uint64_t number, int bucket) override;
  void complete_oldest();
  bool each_summed() const { return shares_.order == LaneOrder::kEachSummed; }

  StagingMemory staging_;
  std::optional<LaneSums> lane_sums_;  // unless each lane is summed at once
  InFlight<Exchange> exchanges_;
};

}  // namespace lockstep::collectives
