#pragma once
// The listener to each op that runs: the timeline, and the search for numbers that are not finite.

#include <cstddef>
#include <span>

#include "runtime/graph/graph.h"
#include "runtime/graph/lane_context.h"

namespace lockstep {

// What an executor tells of the ops that it runs while somebody listens.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  // Op number `op` of the graph was run for one lane, between these readings of now_ms() by the
  // host: on a device that works from a queue, only queued.
  virtual void ran(size_t /*op*/, double /*start_ms*/, double /*end_ms*/) {}
  // Right after that, of an op of one lane: where the tensors of its graph lie for it, by number;
  // those of the op's inputs and outputs are as it has left them, once the device is done.
  virtual void wrote(const Graph& /*graph*/,
                     size_t /*op*/,
                     const LaneContext& /*lane*/,
                     std::span<std::byte* const> /*tensors*/) {}
};

}  // namespace lockstep
