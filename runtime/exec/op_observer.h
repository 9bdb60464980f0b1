#pragma once
// An observer of the ops that run: the timeline, and the search for numbers that are not finite.

#include <cstddef>
#include <span>

#include "runtime/graph/graph.h"
#include "runtime/graph/lane_context.h"

namespace lockstep::exec {

// What an executor reports about its ops while it is observed.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  // Op number `op` of the graph ran for one lane between these two readings of now_ms() on the
  // host. On a device that works from a queue, it was only queued.
  virtual void ran(size_t /*op*/, double /*start_ms*/, double /*end_ms*/) {}
  // Called right after ran() for an op of a single lane. `tensors`: the addresses of the graph's
  // tensors for this lane, by number. The op's inputs and outputs hold what the op left there, once
  // the device is done.
  virtual void wrote(const graph::Graph& /*graph*/,
                     size_t /*op*/,
                     const graph::LaneContext& /*lane*/,
                     std::span<std::byte* const> /*tensors*/) {}
};

}  // namespace lockstep::exec
