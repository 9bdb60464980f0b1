#pragma once
// A rank that never gets as far as its first step fails for a reason of its own: to start it again
// and again helps nobody.

#include <map>
#include <optional>

#include "launcher/launch/restarts.h"

namespace lockstep::launch {

class FirstSteps {
 public:
  static constexpr int kStarts = 3;

  // The rank that has failed in so many starts in a row, in none of which any rank made a step, as
  // it ended now; nothing if there is none. Starts that failed because of a machine - a disk, the
  // network, a host that is lost or drained - do not count.
  std::optional<RankEnd> note(const StartEnd& end);
  // From now on it is another matter: other hosts take part.
  void forget() { failed_.clear(); }

 private:
  std::map<int, int> failed_;  // starts in a row, by rank
};

}  // namespace lockstep::launch
