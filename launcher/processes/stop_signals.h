#pragma once
// The signals that ask `launch` to stop.

#include <atomic>
#include <mutex>
#include <thread>

#include "runtime/base/file.h"

namespace lockstep::launcher {

// While it exists, the signals of lockstep::stop_signals() (SIGUSR1, SIGTERM, SIGINT, SIGHUP) are
// read here. SIGPIPE is ignored from then on, so that a host that is gone or a closed output ends
// nothing. Only one at a time, as signals belong to the process.
//
// A thread reads the signals. A second SIGINT asks to kill; if this object still exists 0.7 s
// later, whatever the process waits for, the thread ends the process with exit code 6. Its children
// end with it.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  enum class Request { kNone, kStop, kKill };
  // What the signals since the last call ask for: the first one to stop, a second SIGINT to kill.
  Request read();
  bool stop_requested() const { return stop_; }
  // Waits for `seconds`, or until a stop is requested.
  void wait(double seconds);
  // Becomes readable when read() has something new.
  int descriptor() const { return event_.fd; }

 private:
  void listen();
  void handle(int number);

  Descriptor signals_, event_, end_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  Request request_ = Request::kNone;  // not read yet
  bool interrupted_ = false;
  double killed_ms_ = 0;  // when a kill was requested; 0: it was not
  std::thread thread_;
};

}  // namespace lockstep::launcher
