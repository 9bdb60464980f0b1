#pragma once
// The path of a bucket through the levels of the topology; the common part of TreeExchange and
// LaneExchange. level_exchange.cc explains it.

#include <vector>

#include "collectives/layout/exchange_levels.h"
#include "collectives/layout/topology.h"
#include "collectives/reduce/gradient_exchange.h"
#include "collectives/reduce/in_flight.h"
#include "collectives/reduce/lane_sums.h"

namespace lockstep::collectives {

class LevelExchange : public GradientExchange {
 public:
  void begin_step(TransferChecksums* transfers) override;
  void reduce() override;

 protected:
  // `feedback`: null without residuals; borrowed.
  LevelExchange(GradientExchangeSetup setup,
                const StagingMemory& staging,
                const WireRounding& wire);

  // Starts the exchange of a bucket that this rank has added up. `levels`, borrowed, says which
  // sums it and the others offer; its own are in the first gradient buffers.
  void start_exchange(int bucket, int turn, const std::vector<ExchangeLevel>& levels);
  DType wire_of(int bucket) const { return wire_.of(gradients_, bucket); }
  bool in_memory(size_t level) const { return node_ != nullptr && level == 0; }
  size_t in_flight() const override { return exchanges_.count(); }

  // Where to put sum number `sum` of the last level, for this rank's part of the bucket.
  virtual float* place_of(int bucket, int turn, size_t sum) = 0;
  // Adds to the terms of a sum, for this rank's part `mine`, what only one implementation has.
  virtual void complete(TreeSumTerms& /*terms*/,
                        int /*bucket*/,
                        size_t /*level*/,
                        size_t /*sum*/,
                        const Range& /*mine*/) {}
  // All sums of the last level are there.
  virtual void summed(int bucket, int turn) = 0;
  // Whether the ranks of the node tell each other that they have read this bucket in memory.
  virtual bool announces_reads(int /*bucket*/) const { return !gradients_.offsets.empty(); }

  std::vector<Arrival> last_read_;  // by the ranks of the node, of each bucket's gradients

 private:
  // The sums that a rank offers to a level, `stride` bytes apart.
  struct Offered {
    const std::byte* first = nullptr;
    size_t stride = 0;
  };
  struct Exchange {
    int bucket = -1;
    int turn = 0;
    const std::vector<ExchangeLevel>* levels = nullptr;
    size_t level = 0;     // the current one
    Range range;          // of which it sums one part
    Offered floats = {};  // what this rank offers to it
    Offered sent = {};    // the same as it is sent
    std::byte* received = nullptr;
    float* kept = nullptr;       // staging for sums between two levels,
    std::byte* moved = nullptr;  // and for what is sent and received
    Arrival arrival = {};
    double start_ms = 0;  // of the level, if there is an observer
  };
  void complete_until(uint64_t number, int bucket) override;
  void complete_oldest();
  void start_level(Exchange& exchange);
  void list_terms(const Exchange& exchange, const Range& mine);
  void sum_level(Exchange& exchange);

  StagingMemory staging_;
  WireRounding wire_;
  int64_t staging_of_two_;  // floats of staging for two elements of each rank's part
  InFlight<Exchange> exchanges_;
  std::vector<const void*> arrays_;  // of the terms of a level
};

}  // namespace lockstep::collectives
