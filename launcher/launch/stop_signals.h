#pragma once
// The signals by which somebody asks `launch` to stop.

#include <atomic>
#include <mutex>
#include <thread>

#include "runtime/base/file.h"

namespace lockstep::launch {

// While it lives the signals of lockstep::stop_signals() (SIGUSR1, SIGTERM, SIGINT, SIGHUP) wait to be
// read here. SIGPIPE is ignored from then on: a host that is gone, or a reader of the output, ends
// nothing. One at a time: they belong to the process.
//
// A thread reads the signals. A second SIGINT asks to kill; if this object is still there most of a
// second later, whatever the process waits for, the thread ends the process with exit code 6. What
// it has started ends with it.
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
  int descriptor() const { return news_.fd; }

 private:
  void listen();
  void heed(int number);

  Descriptor signals_, news_, end_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  Wish wish_ = Wish::kNone;  // not read yet
  bool interrupted_ = false;
  double killed_ms_ = 0;  // when somebody asked to; 0: nobody has
  std::thread thread_;
};

}  // namespace lockstep::launch
