#include "runtime/metrics/meetings.h"

#include <algorithm>

namespace lockstep {

Meetings::Meetings(std::span<const MeetingArrival> mine) {
  for (const MeetingArrival& arrival : mine) meetings_.emplace(arrival.key, RankMeeting{});
}

void Meetings::add(int rank, std::span<const MeetingArrival> arrivals) {
  for (const MeetingArrival& arrival : arrivals) {
    const auto found = meetings_.find(arrival.key);
    if (found == meetings_.end()) continue;
    RankMeeting& meeting = found->second;
    if (meeting.ranks == 0 || arrival.at_ms > meeting.last_ms) {
      meeting.last_ms = arrival.at_ms;
      meeting.last_rank = rank;
    }
    meeting.first_ms =
        meeting.ranks == 0 ? arrival.at_ms : std::min(meeting.first_ms, arrival.at_ms);
    ++meeting.ranks;
  }
}

const RankMeeting* Meetings::find(uint64_t key) const {
  const auto found = meetings_.find(key);
  return found != meetings_.end() && found->second.ranks > 0 ? &found->second : nullptr;
}

}  // namespace lockstep
