#pragma once
// Detects a rank that never reaches its first step: restarting does not help.

#include <map>
#include <optional>

#include "launcher/launch/restarts.h"

namespace lockstep::launch {

class FirstSteps {
 public:
  static constexpr int kStarts = 3;

  // Returns a rank, with its latest end, that has failed in kStarts starts in a row without any
  // rank making a step; nullopt if there is none. Starts that failed because of a machine (a disk,
  // the network, a host that is lost or drained) do not count.
  std::optional<RankEnd> note(const StartEnd& end);
  // Resets the counts, because other hosts take part.
  void forget() { failed_.clear(); }

 private:
  std::map<int, int> failed_;  // starts in a row, by rank
};

}  // namespace lockstep::launch
