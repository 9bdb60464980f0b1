#pragma once
// Which rank arrived last at each collective. All ranks may wait equally long there, for each
// other; only the times of arrival show for whom they wait.

#include <cstdint>
#include <span>
#include <unordered_map>

namespace lockstep::metrics {

// The group of ranks that take part in a span's work. Ranks of the same group pass the same number.
struct CollectiveGroup {
  int number = 0;
  int ranks = 0;  // size of the group; 0: no group, the work is this rank's alone
};

// When a rank arrived at a collective. `key` identifies the collective and is the same on all
// ranks; see Timeline.
struct CollectiveArrival {
  uint64_t key = 0;
  double at_ms = 0;
};

// The first and the last arrival at one collective.
struct ArrivalSummary {
  double first_ms = 0, last_ms = 0;
  int last_rank = -1;
  int ranks = 0;  // number of ranks whose arrival is known
};

class CollectiveArrivals {
 public:
  // Only the collectives of `mine` are kept; add() ignores others.
  explicit CollectiveArrivals(std::span<const CollectiveArrival> mine);
  // Adds the arrivals of one rank, by rank 0's clock. To be called once for each rank, this one
  // included.
  void add(int rank, std::span<const CollectiveArrival> arrivals);
  // Null if no rank's arrival at it is known.
  const ArrivalSummary* find(uint64_t key) const;

 private:
  std::unordered_map<uint64_t, ArrivalSummary> summaries_;
};

}  // namespace lockstep::metrics
