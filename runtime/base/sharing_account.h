#pragma once
// Whether it pays at present to share loops among threads.

#include <algorithm>

namespace lockstep {

// The owner of a pool of threads compares the time of each shared loop with the time that its own
// parts suggest for the owner alone. On cores that other processes hold, or under a quota, a loop
// may wait milliseconds for a thread that does not run. When the losses exceed the gains, loops are
// not shared for ten times as long as was lost. So sharing costs a tenth of the time at most, and
// begins again by itself when the machine is quiet. All times are in milliseconds.
class SharingAccount {
 public:
  bool pays(double now_ms) const { return now_ms >= resumes_ms_; }

  // A loop that ended at `now_ms` took `shared_ms`, and would have taken `alone_ms` by one thread.
  void add(double alone_ms, double shared_ms, double now_ms) {
    lost_ms_ = std::max(lost_ms_ + shared_ms - alone_ms, -kMaxCreditMs);
    if (lost_ms_ <= kMaxDebtMs) return;
    resumes_ms_ = now_ms + kPauseFactor * lost_ms_;
    lost_ms_ = 0;
  }

 private:
  static constexpr double kPauseFactor = 10;
  static constexpr double kMaxDebtMs = 0.2;    // a few wake-ups of sleeping threads
  static constexpr double kMaxCreditMs = 100;  // a machine that gets busy is noticed after so much

  double lost_ms_ = 0;
  double resumes_ms_ = 0;
};

}  // namespace lockstep
