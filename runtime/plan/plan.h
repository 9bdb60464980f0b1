#pragma once
// The plan of a run: where every parameter, gradient and activation lies, and how many bytes each
// rank will allocate. Plain, printable data, computed before anything is allocated.

#include <cstddef>
#include <optional>
#include <vector>

#include "runtime/plan/layout.h"
#include "runtime/plan/memory_plan.h"
#include "runtime/plan/program_plan.h"
#include "runtime/plan/sharding_plan.h"
#include "runtime/plan/traffic_plan.h"

namespace lockstep::plan {

struct Plan {
  ShardingPlan sharding;
  ParameterLayout layout;
  ProgramPlans programs;
  TrafficPlan traffic;
  MemoryPlan memory;
};

struct PlanOptions {
  // What the optimizer keeps.
  struct Optimizer {
    int moments = 0;                          // fp32 moments per parameter
    int half_moments = 0;                     // 16-bit moments per parameter
    int block_moments = 0;                    // 8-bit moments per parameter, in MomentBlocks
    bool by_bucket = false;                   // buckets may be updated at different times
    const OptimizerConfig* config = nullptr;  // borrowed; null: it keeps every moment of all
    NewtonSchulzBytes newton_schulz_bytes = {};
    // copies the state of a checkpoint, so that it is written while training continues
    bool snapshot = false;
  };
  // What data take on the host, in bytes.
  struct Data {
    size_t train_batches = 0;  // rings of the loaders
    size_t eval_batches = 0;
    size_t eval_scores = 0;  // for the task's metrics
    size_t dataset = 0;
  };
  // What a device with memory of its own holds in addition.
  struct Device {
    size_t batch_bytes = 0;    // the lanes' batches
    size_t sums_bytes = 0;     // DeviceSums::bytes()
    size_t library_bytes = 0;  // OpSet::workspace_bytes
    // Lengths of samples for which the work of lanes is recorded, as CUDA graphs; 0: none is.
    size_t recorded_lengths = 0;
    bool adds_pairs = false;  // two lanes at a time, in the least memory: see lanes_at_once()
  };

  ShardingPlan sharding = {};
  double bucket_mib = 25;
  DType wire = DType::kF32;
  int power_sgd = 0;  // the rank of low-rank gradient factors; 0: off
  Optimizer optimizer = {};
  Data data = {};
  std::optional<Device> device = {};  // empty: it uses the host's memory
  bool evaluation_only = false;       // no gradients, moments or exchange
};

// The graphs of a run.
struct RunGraphs {
  graph::Graph training = {};                   // differentiated
  std::optional<graph::Graph> evaluation = {};  // ends in the loss or, to predict, in the output
  // For samples shorter than the context (execution.length_buckets), in increasing order. Each lane
  // runs the shortest program that its samples fit into, or the one of the whole context. An
  // evaluation has none if its result would have another shape at these lengths.
  std::vector<graph::Graph> length_bucket_training = {}, length_bucket_evaluation = {};
  // `training` for the lanes of a pass as if they were one, if they are several
  // (ShardingPlan::lanes_per_pass).
  std::optional<graph::Graph> joint_training = {};
};

Plan make_plan(const RunGraphs& graphs,
               const PlanOptions& options,
               const WorkspaceBytes& workspace_bytes);

}  // namespace lockstep::plan
