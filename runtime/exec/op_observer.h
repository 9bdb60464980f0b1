#pragma once
// The listener to each op that runs: the timeline.

#include <cstddef>

namespace lockstep {

// What an executor tells of the ops that it runs while somebody listens.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  // Op number `op` of the graph was run for one lane, between these readings of now_ms() by the
  // host: on a device that works from a queue, only queued.
  virtual void ran(size_t op, double start_ms, double end_ms) = 0;
};

}  // namespace lockstep
