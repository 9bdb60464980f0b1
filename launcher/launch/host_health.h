#pragma once
// Which hosts take part in a start, as the ends of earlier starts suggest.
//
// A host is left out for a pause, if `fewer` allows it and the other hosts have slots enough:
//  - if it is at fault in kStrikes starts in a row: its ranks were the first to fail, it did not
//    answer, or its connection broke off. A failure after more than an hour of work counts as the
//    first of a row;
//  - at once, if it is drained: its ranks, and not those of all hosts, were asked to stop.
// Each further pause is twice as long. After a pause a host takes part in the next start, if it
// answers; one more failure leaves it out again.

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/hostfile.h"
#include "launcher/launch/restarts.h"

namespace lockstep::launch {

// What a start needs.
struct WantedRanks {
  int ranks = 1;
  int64_t lanes = 1;
  bool fewer = false;  // may be started on fewer slots
};

class HostHealth {
 public:
  static constexpr int kStrikes = 3;
  static constexpr double kFirstPauseSeconds = 60, kLongestPauseSeconds = 3600;
  static constexpr double kLongStartSeconds = 3600;

  HostHealth(const std::vector<HostSlots>& hosts, const WantedRanks& wanted);

  // Those that take part in a start at this time: all of them if the others are not enough.
  std::vector<HostSlots> present(double now_s);

  // The hosts of ranks that were asked to stop, though `launch` was not; empty if the run cannot go
  // on without them.
  std::vector<std::string> drained(const StartEnd& end, double now_s) const;

  struct Notes {
    std::vector<std::string> lines;  // about each host that is left out now, or should be
    bool left_out = false;
  };
  // Counts what a start of so many seconds that ended at this time tells of its hosts.
  Notes note(const StartEnd& end, double lasted_s, double now_s);

 private:
  struct Host {
    HostSlots slots;
    int strikes = 0, pauses = 0;
    double out_until_s = 0;
  };
  double leave_out(Host& host, double now_s);
  bool can_do_without(const std::vector<std::string>& names, double now_s) const;

  std::vector<Host> hosts_;
  WantedRanks wanted_;
  bool take_all_ = false;  // too few answered the last time
};

}  // namespace lockstep::launch
