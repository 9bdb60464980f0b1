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
  std::string state = {};   // if it cannot be killed
  std::string listed = {};  // the host's name in the hostfile
};

struct StartEnd {
  std::vector<RankEnd> ranks;                // empty if none was started
  std::vector<std::string> trouble;          // what kept ranks from being started
  std::vector<std::string> lost_hosts = {};  // that did not answer or broke off, as in the hostfile
  std::string other_build = {};  // why the ranks were not started: a host has another program
  bool stop_requested = false;   // `launch` was asked to stop
  bool too_few_left = false;     // hosts with processes that cannot be killed leave too few slots
  // As the run folder tells.
  bool done = false;                      // the run is done
  bool work_lost = false;                 // steps were made that no checkpoint has
  bool made_steps = false;                // by any rank, in this start
  std::optional<int> stuck_rank = {};     // that the ranks' watchdogs have named
  std::vector<int> signalled = {};        // the ranks that were asked to save and stop
  std::vector<std::string> drained = {};  // hosts of such ranks, without which the run can go on
};

struct Decision {
  bool again = false;
  int code = 0;  // the exit code of `launch` if it ends now
};

// A rank's own exit code for what every start would end with (config, data, run folder, memory,
// numbers) ends all, with that code; so does 75, unless only drained hosts were asked to stop. What
// a dead peer, a lost host, a signal or a disk (kMayPassCode) ends is tried again, unless a stop was
// asked for.
Decision decide(const StartEnd& end);

// The first rank that failed by itself, not because another one had; null if that is not known.
const RankEnd* first_to_fail(const StartEnd& end);

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
