#include "collectives/clock_offset.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/time.h"

namespace lockstep {

ClockOffset clock_offset(std::span<const ClockMeeting> root, std::span<const ClockMeeting> mine) {
  LOCKSTEP_CHECK(root.size() == mine.size() && !mine.empty());
  double least_ahead = -std::numeric_limits<double>::infinity();
  double most_ahead = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < mine.size(); ++i) {
    least_ahead = std::max(least_ahead, mine[i].entered_ms - root[i].left_ms);
    most_ahead = std::min(most_ahead, mine[i].left_ms - root[i].entered_ms);
  }
  if (least_ahead <= 0 && most_ahead >= 0) return {0, std::max(-least_ahead, most_ahead)};
  const double within = std::max(0.0, (most_ahead - least_ahead) / 2);
  return {-(least_ahead + most_ahead) / 2, within};
}

ClockOffset measure_clock_offset(Communicator& communicator) {
  constexpr size_t kMeetings = 100;
  std::vector<std::byte> place(static_cast<size_t>(communicator.size()));
  std::vector<ClockMeeting> mine(kMeetings);
  for (ClockMeeting& meeting : mine) {
    meeting.entered_ms = now_ms();
    communicator.all_gather(place.data(), 1);
    meeting.left_ms = now_ms();
  }
  std::vector<ClockMeeting> root = mine;
  communicator.broadcast(
      reinterpret_cast<std::byte*>(root.data()), root.size() * sizeof(ClockMeeting), 0);
  return clock_offset(root, mine);
}

}  // namespace lockstep
