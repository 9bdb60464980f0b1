#pragma once
// Runs the ops of a graph one at a time, with every tensor in memory of its own, to compare two
// backends on an op or to time it.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/exec/backend.h"
#include "runtime/graph/graph.h"

namespace lockstep::exec {

class OpRunner {
 public:
  // Device memory that a runner of this graph needs.
  static size_t device_bytes(const graph::Graph& graph, const OpSet& ops);

  // Allocates all tensors, zeroed, from memory that the backend has reserved. Both arguments are
  // borrowed.
  OpRunner(const graph::Graph& graph, Backend& backend);

  // Sets the lane for the ops that follow.
  void begin(const graph::LaneContext& lane);

  // Returns the elements of a tensor in row-major order, without padding. Waits for queued work.
  std::vector<double> read(TensorId tensor);
  // Sets the elements of a tensor, rounded to its type.
  void write(TensorId tensor, std::span<const double> elements);
  // Queues one op.
  void run(size_t op);
  // What runs an op.
  const Implementation& implementation(size_t op) const { return *implementations_[op]; }

 private:
  void gather_lanes(const graph::Op& op);

  const graph::Graph& graph_;
  Backend& backend_;
  std::vector<std::byte*> tensors_;
  std::byte* workspace_ = nullptr;
  std::vector<const Implementation*> implementations_;
  std::span<graph::LaneContext> lane_;
  std::span<std::byte> staging_;  // on the host, as large as the largest tensor
};

}  // namespace lockstep::exec
