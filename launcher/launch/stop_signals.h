#pragma once
// The signals by which somebody asks `launch` to stop.

#include "runtime/base/file.h"

namespace lockstep::launch {

// While it lives SIGUSR1, SIGTERM, SIGINT and SIGHUP (unless that is ignored, as under nohup) wait
// to be read here. SIGPIPE is ignored from then on: a host that is gone, or a reader of what is said,
// ends nothing. One at a time: they belong to the process.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  enum class Wish { kNone, kStop, kKill };
  // What signals that have come since ask for: the first one to stop, a second SIGINT to kill.
  Wish read();
  bool stop_requested() const { return stop_; }
  // Waits for so long, or until somebody asks to stop.
  void wait(double seconds);
  // Can be read where read() has news.
  int descriptor() const { return descriptor_.fd; }

 private:
  Descriptor descriptor_;
  bool stop_ = false, interrupted_ = false;
};

}  // namespace lockstep::launch
