#pragma once
// Text for a stream or file that may take it late or never.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace lockstep {

// What is printed waits in a bounded queue, and a thread of the queue writes it, in its order. So work
// never waits for a pipe that nobody reads, a terminal that stands still (Ctrl-S) or a full disk.
//
//   add() -> queue -> thread: poll(), write() of up to PIPE_BUF bytes -> descriptor
//
// If the queue is full its oldest text is dropped, and a line in its place says how many lines that
// were. What cannot be written now (ENOSPC, EPIPE) is tried again until it can, or is dropped so.
// Descriptors stay as they are, since other processes may share them. The thread may therefore stay
// in write() for ever: nothing ever joins it, and flush() and the destructor wait within limits.
// Thread-safe. In a child process after fork(), which lacks the thread, flush() itself writes.
class OutputQueue {
 public:
  enum class Kind {
    kLog,
    kResult,  // counted apart if it is lost
    kRedraw   // replaces one before it that still waits
  };

  struct Options {
    size_t max_bytes = size_t{4} << 20;
    // Called by the thread once, at the first failure, with its errno.
    std::function<void(int)> on_failure = {};
  };

  explicit OutputQueue(Options options);
  ~OutputQueue();  // drops what waits
  OutputQueue(const OutputQueue&) = delete;
  OutputQueue& operator=(const OutputQueue&) = delete;

  // Text, usually a line, for a descriptor, which must stay open until it is written or dropped.
  void add(int descriptor, std::string text, Kind kind = Kind::kLog);

  // Waits until all that was added is written. False: it is not, since writing fails, or since
  // nothing was taken for `stall_ms`, or after `limit_ms`.
  bool flush(double stall_ms, double limit_ms);

  // Lines so far: dropped, and not written yet.
  struct Counts {
    uint64_t lines = 0, results = 0;  // all, and those of kResult
  };
  Counts dropped() const;
  Counts waiting() const;
  // Why the newest attempt failed; 0: it did not.
  int error() const;
  // Whether nothing waits. Safe in a signal handler.
  bool idle() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // with the thread
};

}  // namespace lockstep
