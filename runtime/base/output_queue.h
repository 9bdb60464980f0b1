#pragma once
// Output to a stream or file that may accept it late or never.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

// Printed text waits in a bounded queue, and a thread of the queue writes it in order. So the work
// never blocks on a pipe that nobody reads, a stopped terminal (Ctrl-S) or a full disk.
//
//   add() -> queue -> thread: poll(), write() of up to PIPE_BUF bytes -> descriptor
//
// If the queue is full, its oldest text is dropped, and a line in its place reports the number of
// dropped lines. Text that cannot be written now (ENOSPC, EPIPE) is retried until it is written or
// dropped. Descriptors are not made non-blocking, since other processes may share them. So the
// thread may block in write() for ever: nothing joins it, and flush() and the destructor wait
// within limits. Thread-safe. After fork() the child process lacks the thread; there flush() itself
// writes.
class OutputQueue {
 public:
  enum class Kind {
    kLog,
    kResult,  // counted separately if it is lost
    kRedraw   // replaces a pending kRedraw before it; other text then takes its place
  };

  // Before a text that takes the place of a line of a terminal.
  static constexpr std::string_view kEraseLine = "\r\x1b[K";

  struct Options {
    size_t max_bytes = size_t{4} << 20;
    // The thread calls this once, at the first failure, with its errno.
    std::function<void(int)> on_failure = {};
  };

  explicit OutputQueue(Options options);
  ~OutputQueue();  // drops pending text
  OutputQueue(const OutputQueue&) = delete;
  OutputQueue& operator=(const OutputQueue&) = delete;

  // Appends a text, usually one line, for a descriptor, which must stay open until the text is
  // written or dropped.
  void add(int descriptor, std::string text, Kind kind = Kind::kLog);

  // Waits until everything added so far is written. Returns false if it is not: writing fails,
  // nothing was written for `stall_ms`, or `limit_ms` have passed.
  bool flush(double stall_ms, double limit_ms);

  // Counts of lines that are dropped, or pending.
  struct Counts {
    uint64_t lines = 0, results = 0;  // all lines, and those of kResult
  };
  Counts dropped() const;
  Counts waiting() const;
  // The errno of the newest attempt; 0 if it succeeded.
  int error() const;
  // Whether nothing is pending. Safe in a signal handler.
  bool idle() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread
};

}  // namespace lockstep
