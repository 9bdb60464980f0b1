#pragma once
// Decides whether sharing loops among threads pays at present.

#include <algorithm>

namespace lockstep {

// The owner of a thread pool compares the time of each shared loop with the time that the owner
// alone would have taken, estimated from its own parts. If other processes hold the cores, or under
// a CPU quota, a loop may wait milliseconds for a thread that does not run. When the losses exceed
// the gains, loops are not shared for ten times as long as the time lost. So sharing costs at most
// a tenth of the time, and it resumes by itself when the machine is quiet. All times are in
// milliseconds.
class SharingAccount {
 public:
  bool pays(double now_ms) const { return now_ms >= resumes_ms_; }

  // Records a loop that ended at `now_ms` and took `shared_ms`; one thread would have taken
  // `alone_ms`.
  void add(double alone_ms, double shared_ms, double now_ms) {
    lost_ms_ = std::max(lost_ms_ + shared_ms - alone_ms, -kMaxCreditMs);
    if (lost_ms_ <= kMaxDebtMs) return;
    resumes_ms_ = now_ms + kPauseFactor * lost_ms_;
    lost_ms_ = 0;
  }

 private:
  static constexpr double kPauseFactor = 10;
  static constexpr double kMaxDebtMs = 0.2;    // a few wake-ups of sleeping threads
  static constexpr double kMaxCreditMs = 100;  // bounds how late a busy machine is noticed

  double lost_ms_ = 0;
  double resumes_ms_ = 0;
};

}  // namespace lockstep
