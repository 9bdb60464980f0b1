#pragma once
// Which hosts take part in a start, judged by the ends of earlier starts.
//
// A host is left out for a pause, if `fewer` allows it and the other hosts have enough slots:
//  - if it is at fault in kStrikes starts in a row: its ranks were the first to fail, it did not
//    answer, or its connection broke. A failure after more than an hour of work counts as the first
//    of a row;
//  - at once, if it is drained: its ranks, but not those of all hosts, were asked to stop.
// Each further pause is twice as long. After a pause the host takes part in the next start, if it
// answers. One more failure leaves it out again.

#include <string>
#include <vector>

#include "launcher/launch/restarts.h"
#include "launcher/ranks/hostfile.h"

namespace lockstep::launch {

// The ranks that a start needs.
struct WantedRanks {
  int ranks = 1;
  bool fewer = false;  // the run may be started with fewer ranks
};

class HostHealth {
 public:
  static constexpr int kStrikes = 3;
  static constexpr double kFirstPauseSeconds = 60, kLongestPauseSeconds = 3600;
  static constexpr double kLongStartSeconds = 3600;

  HostHealth(const std::vector<launcher::HostSlots>& hosts, const WantedRanks& wanted);

  // The hosts that take part in a start at this time; all of them if the others are not enough.
  std::vector<launcher::HostSlots> present(double now_s);

  // The hosts whose ranks were asked to stop although `launch` was not; empty if the run cannot
  // continue without them.
  std::vector<std::string> drained(const StartEnd& end, double now_s) const;

  struct Notes {
    std::vector<std::string> lines;  // for each host that is left out now, or should be
    bool left_out = false;
  };
  // Records the end of a start that lasted `lasted_s` and ended at `now_s`.
  Notes note(const StartEnd& end, double lasted_s, double now_s);

 private:
  struct Host {
    launcher::HostSlots slots;
    int strikes = 0, pauses = 0;
    double out_until_s = 0;
  };
  double leave_out(Host& host, double now_s);
  bool can_do_without(const std::vector<std::string>& names, double now_s) const;

  std::vector<Host> hosts_;
  WantedRanks wanted_;
  bool take_all_ = false;  // too few hosts answered last time
};

}  // namespace lockstep::launch
