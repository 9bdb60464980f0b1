#pragma once
// A graph laid out in memory: its arena, its states and constants, and what it exchanges when.

#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/layout/sharding.h"
#include "runtime/graph/graph.h"

namespace lockstep::plan {

// Bytes [offset, offset + bytes) of the arena, in use from op `first_op` through op `last_op`.
struct Placement {
  TensorId tensor = kNoTensor;  // kNoTensor: the workspace of first_op
  size_t offset = 0;
  size_t bytes = 0;
  int first_op = 0;
  int last_op = 0;
};

// A parameter by number, and its byte offset in the memory for gathered parameters.
struct PlacedParameter {
  size_t parameter = 0;
  size_t offset = 0;
};

// A state or a constant of the graph, and its byte offset in the memory for states or for
// constants.
struct PlacedTensor {
  TensorId tensor = kNoTensor;
  size_t offset = 0;
};

// One graph laid out in the arena.
struct ProgramPlan {
  std::vector<Placement> placements;
  std::vector<size_t> tensor_offsets;     // by TensorId; kNotInArena for tensors elsewhere
  std::vector<size_t> workspace_offsets;  // by op
  size_t arena_bytes = 0;
  int lanes = 1;  // that run at the same time, each with its slice of every tensor in the arena
  // Bytes from a lane's slice of a tensor to the next one's. If the tensor's own bytes are as many,
  // the slices are one array.
  static size_t lane_stride(const graph::Tensor& tensor);
  // Tensors that persist from run to run, in the order of the graph. Equal states of two graphs
  // have the same offsets, so that programs may share the memory for states.
  std::vector<PlacedTensor> states;
  size_t state_bytes = 0;
  // If a plan has several programs, each one's constants follow those of the programs before it.
  std::vector<PlacedTensor> constants;
  size_t constant_bytes = 0;  // of this program
  int64_t flops = 0;          // of one lane
  std::vector<std::vector<int>>
      buckets_after_op;  // gradient buckets that are complete after each op; training only
  // The all-gathers of parameters, or of the sums that update them (gather_sums()), in the order in
  // which ops need them, and how many of them must be done before each op. Only training has them,
  // once a step; if parameters are sharded, every program has them, each time that it runs.
  std::vector<collectives::GatherItem> gathers;
  std::vector<size_t> gathered_before_op;
  bool gathers_each_run = false;
  // Before each op: the offsets of the parameters of the blocks that arrive for it.
  std::vector<std::vector<PlacedParameter>> placed_before_op;
  size_t gathered_bytes = 0;  // memory for gathered blocks; 0 if they are gathered in place
  // The gradient buckets that each op is the first to write, if buckets share memory; training
  // only.
  std::vector<std::vector<int>> buckets_begun_by_op;
};
inline constexpr size_t kNotInArena = ~size_t{0};

// Workspace bytes that a backend needs for an op.
using WorkspaceBytes = std::function<size_t(const graph::Graph&, const graph::Op&)>;

// Lays out one graph in the arena, for so many lanes at the same time.
ProgramPlan plan_program(const graph::Graph& graph,
                         const WorkspaceBytes& workspace_bytes,
                         int lanes = 1);

// Whether op number `op` may run once for several lanes, as that of `joint`, whose lanes have the
// samples of so many: it computes samples independently (OpSchema::joins_lanes), and the lanes'
// slices of what it reads and writes are one array.
bool runs_jointly(const graph::Graph& graph, const graph::Graph& joint, size_t op, int lanes);

// The programs of a run. Those for shorter samples are numbered as in RunGraphs.
struct ProgramPlans {
  ProgramPlan training;
  ProgramPlan evaluation;
  std::vector<ProgramPlan> length_bucket_training, length_bucket_evaluation;
  size_t constant_bytes = 0;  // of all of them
};

}  // namespace lockstep::plan
