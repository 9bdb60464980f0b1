#pragma once
// Runs the ops of a graph one at a time, every tensor in memory of its own: to compare what two
// backends make of an op, and to time it.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/exec/backend.h"
#include "runtime/graph/graph.h"

namespace lockstep {

class OpRunner {
 public:
  // Device memory that a runner of this graph takes.
  static size_t device_bytes(const Graph& graph, const OpSet& ops);

  // Allocates all tensors, as zeros, from memory that the backend has reserved. Both are borrowed.
  OpRunner(const Graph& graph, Backend& backend);

  // The lane that the ops are given from here on.
  void begin(const LaneContext& lane);

  // The elements of a tensor in row-major order, without padding; waits for queued work.
  std::vector<double> read(TensorId tensor);
  // Gives the tensor these elements, rounded to its type.
  void write(TensorId tensor, std::span<const double> elements);
  // Queues one op.
  void run(size_t op);

 private:
  void gather_lanes(const Op& op);

  const Graph& graph_;
  Backend& backend_;
  std::vector<std::byte*> tensors_;
  std::byte* workspace_ = nullptr;
  std::vector<const Implementation*> implementations_;
  std::span<LaneContext> lane_;
  std::span<std::byte> staging_;  // the largest tensor, on the host
};

}  // namespace lockstep
