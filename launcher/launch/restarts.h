#pragma once
// What follows the end of a start: another one, or the end of all.

#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

// How a rank has ended, in the order in which they did.
struct RankEnd {
  int rank = 0;
  std::string host;
  int process = 0;
  std::optional<int> code;  // its exit code, or 128 + a signal; nothing: its host was lost
};

struct StartEnd {
  std::vector<RankEnd> ranks;        // empty where none was started
  std::vector<std::string> trouble;  // what kept ranks from being started
  bool done = false;                 // the run folder says that the run is done
  bool stop_requested = false;       // `launch` was asked to stop
  bool work_lost = false;            // steps were made that no checkpoint has
};

struct Decision {
  bool again = false;
  int code = 0;  // else the exit code of `launch`
};

// A rank's own exit code for what every start would end with (config, data, run folder, memory,
// numbers) ends all, with that code; so does 75. What a dead peer, a lost host or a signal ends is
// tried again, unless a stop was asked for.
Decision decide(const StartEnd& end);

// "rank 1 on node1 (process 4711) was ended by signal 9 (Killed)".
std::string text_of(const RankEnd& end);

// The pauses between starts grow, and so does the count of restarts, until a checkpoint shows
// progress.
class Restarts {
 public:
  // most: in a row without progress.
  explicit Restarts(int most) : most_(most) {}
  void progress() { in_a_row_ = 0; }
  // Counts one; the seconds to wait before it, or nothing where there have been as many as allowed.
  std::optional<double> next();

 private:
  int most_;
  int in_a_row_ = 0;
};

// How many ranks to start on so many slots: as many as wanted or, where `fewer` may be, the most
// that divide the lanes. 0: none.
int ranks_for(int wanted, int slots, int64_t lanes, bool fewer);

}  // namespace lockstep::launch
