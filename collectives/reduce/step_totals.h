#pragma once
// The few numbers that end a step, summed over all lanes and ranks.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/exchange/timed_waits.h"
#include "collectives/layout/sharding.h"
#include "collectives/reduce/step_sums.h"

namespace lockstep::collectives {

// The sums, and what the ranks have reported; equal on all ranks but for `digest`.
struct StepTotals : StepSums {
  int64_t flags = 0;        // bitwise or of the ranks' flags
  uint64_t digest = 0;      // this rank's own
  uint64_t digest_sum = 0;  // sum of the ranks' digests, each 32-bit half modulo 2^32
  bool digests_differ = false;
  double slowest_ms = 0;  // the longest time that a rank was busy,
  int slowest_rank = 0;   // the rank that was,
  double fastest_ms = 0;  // and the shortest time
};

// What a rank reports to the others at the end of a step.
struct StepReport {
  int64_t flags = 0;
  uint64_t digest = 0;  // of its state
  // Time that it has worked, without its waits for others, since all ranks last left sum().
  double busy_ms = 0;
  ExactSum squares = {};  // of its parts of the summed gradient
};

class TotalsExchange {
 public:
  // Borrowed; in the host's memory. `node`: what the ranks share; null or of several nodes: the
  // totals are sent. Collective.
  TotalsExchange(Communicator& control, const LaneShares& shares, NodeMemory* node = nullptr);

  // `local`: the statistics of this rank's lanes; none if a device adds up the StepSums, which then
  // stay 0. Collective.
  StepTotals sum(std::span<const LaneStatistics> local, const StepReport& report);

  // As in BucketAllGather.
  void observe(ExchangeObserver* observer) { waits_.observe(observer); }
  void begin_step() { waits_.clear(); }
  double exposed_ms() const { return waits_.ms(); }
  // Call after sum() if its wait was hidden behind a device's work.
  void wait_was_hidden() { waits_.clear(); }

 private:
  Communicator& control_;
  NodeMemory* node_;  // null: they are sent
  LaneShares shares_;
  TimedWaits waits_;
  size_t part_;                   // bytes of a rank: its report and the statistics of its lanes
  std::vector<std::byte> parts_;  // of all ranks
  std::vector<size_t> places_;    // of each lane's statistics in parts_
};

}  // namespace lockstep::collectives
