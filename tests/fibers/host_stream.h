#pragma once
// Streams, events and graphs of the stand-in for CUDA on the host. Work is kept in one queue, in
// the order in which it was given, and done only when the host waits: what reads host memory too
// late, or is given host memory that changes too early, goes wrong here as it would on a GPU. A
// stream that is being captured records its work instead.

#include <functional>
#include <memory>
#include <vector>

namespace lockstep::fibers {

using Recording = std::vector<std::function<void()>>;

}  // namespace lockstep::fibers

struct CUstream_st {
  std::shared_ptr<lockstep::fibers::Recording> recording;  // while captured
  bool origin = false;                                     // of the capture, not joined to it
  bool unjoined = false;  // has work that the origin has not awaited
  unsigned long operations = 0;
};

namespace lockstep::fibers {

// Queues or records `work`; at once without a stream.
void enqueue(CUstream_st* stream, std::function<void()> work);
// Does everything that is queued.
void drain();
// Called before queued work begins and after it has been done, to open and close memory.
inline std::function<void(bool open)> guard_memory;

}  // namespace lockstep::fibers
