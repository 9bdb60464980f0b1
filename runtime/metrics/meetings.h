#pragma once
// Who came last where several ranks meet. All of them may wait equally long there, for each other:
// only the times at which they came say for whom.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace lockstep {

// Which ranks a span's work needs: those that give the same number. `ranks` of them.
struct MeetingGroup {
  int number = 0;
  int ranks = 0;  // 0: none, the work is this rank's own
};

// When a rank came to a meeting. `key` says to which, the same on all ranks: see Timeline.
struct MeetingArrival {
  uint64_t key = 0;
  double at_ms = 0;
};

struct RankMeeting {
  double first_ms = 0, last_ms = 0;
  int last_rank = -1;
  int ranks = 0;  // that have told of it
};

class Meetings {
 public:
  // Those that `mine` has: what the other ranks tell of others is passed over.
  explicit Meetings(std::span<const MeetingArrival> mine);
  // What one rank tells, by rank 0's clock; each rank once, this one too.
  void add(int rank, std::span<const MeetingArrival> arrivals);
  // Null where no rank told of it.
  const RankMeeting* find(uint64_t key) const;

 private:
  std::unordered_map<uint64_t, RankMeeting> meetings_;
};

}  // namespace lockstep
