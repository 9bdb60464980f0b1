#pragma once
// Decides what follows the end of a start: another start, or the end of the run.

#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

// The end of a rank. Ends are stored in the order in which they happened.
struct RankEnd {
  int rank = 0;
  std::string host;
  int process = 0;
  std::optional<int> code;  // exit code, or 128 + a signal; nullopt: its host was lost
  std::string state = {};   // of the process, if it cannot be killed
  std::string listed = {};  // the host's name in the hostfile
};

struct StartEnd {
  std::vector<RankEnd> ranks;                // empty if none was started
  std::vector<std::string> trouble;          // why ranks could not be started
  std::vector<std::string> lost_hosts = {};  // silent or disconnected ones, as in the hostfile
  std::string other_build = {};  // if set, a host has another program, and no ranks were started
  bool stop_requested = false;   // `launch` was asked to stop
  bool too_few_left = false;     // unkillable processes leave too few slots
  // According to the run folder:
  bool done = false;                      // the run is complete
  bool work_lost = false;                 // some steps are in no checkpoint
  bool made_steps = false;                // any rank did, in this start
  std::optional<int> stuck_rank = {};     // named by the ranks' watchdogs
  std::vector<int> signalled = {};        // ranks that were asked to save and stop
  std::vector<std::string> drained = {};  // their hosts, if the run can continue on others
};

struct Decision {
  bool again = false;
  int code = 0;  // exit code of `launch` if it ends now
};

// Ends with a rank's exit code if every start would end with it (config, data, run folder, memory,
// numeric failure), and with 75 unless only drained hosts were asked to stop. Starts again after a
// dead peer, a lost host, a signal or a disk error that may pass (kMayPassCode), unless a stop was
// requested.
Decision decide(const StartEnd& end);

// The first rank that failed by itself, not because of another one; null if unknown.
const RankEnd* first_to_fail(const StartEnd& end);

// "rank 1 on node1 (process 4711) was ended by signal 9 (Killed)".
std::string text_of(const RankEnd& end);

// Counts restarts and computes their pauses; both start over once a new checkpoint shows progress.
class Restarts {
 public:
  // `max_in_a_row`: max number of restarts in a row without progress.
  explicit Restarts(int max_in_a_row) : max_(max_in_a_row) {}
  void progress() { in_a_row_ = 0; }
  // Counts a restart and returns the seconds to wait before it; nullopt if the max is reached.
  std::optional<double> next();

 private:
  int max_;
  int in_a_row_ = 0;
};

// The number of ranks to start on `slots` slots: `wanted` or, if `fewer` allows it, as many as fit.
// 0: none.
int ranks_for(int wanted, int slots, bool fewer);

}  // namespace lockstep::launch
