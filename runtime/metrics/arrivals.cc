#include "runtime/metrics/arrivals.h"

#include <algorithm>

namespace lockstep::metrics {

CollectiveArrivals::CollectiveArrivals(std::span<const CollectiveArrival> mine) {
  for (const CollectiveArrival& arrival : mine) summaries_.emplace(arrival.key, ArrivalSummary{});
}

void CollectiveArrivals::add(int rank, std::span<const CollectiveArrival> arrivals) {
  for (const CollectiveArrival& arrival : arrivals) {
    const auto found = summaries_.find(arrival.key);
    if (found == summaries_.end()) continue;
    ArrivalSummary& summary = found->second;
    if (summary.ranks == 0 || arrival.at_ms > summary.last_ms) {
      summary.last_ms = arrival.at_ms;
      summary.last_rank = rank;
    }
    summary.first_ms =
        summary.ranks == 0 ? arrival.at_ms : std::min(summary.first_ms, arrival.at_ms);
    ++summary.ranks;
  }
}

const ArrivalSummary* CollectiveArrivals::find(uint64_t key) const {
  const auto found = summaries_.find(key);
  return found != summaries_.end() && found->second.ranks > 0 ? &found->second : nullptr;
}

}  // namespace lockstep::metrics
