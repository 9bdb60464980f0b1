#pragma once
// From a config to everything that a run is made of: a line of stages, a file each, none of which
// goes back.
//
//   1 read_config.h   the text of the file, with the overrides of the command line
//   2 open_config.h   the model
//     lanes.h         AUTO becomes a number of lanes
//     precision.h     AUTO becomes FP32 or BF16
//   3 open_data.h     the data
//   4 resolve.h       what the config leaves to the data; nothing changes the config afterwards
//   5 build_graphs.h  the graphs
//   6 defaults.h      ZeRO stage, buckets and the like; fit.h checks that the run fits into memory
//   7 plan_run.h      the plan
//
// Checks that need no data are in config_checks.h and run after stage 2, those of graphs and plan
// in capability_checks.h.

#include <memory>
#include <string>
#include <vector>

#include "runtime/exec/backend.h"
#include "runtime/run/plan_run.h"
#include "runtime/train/run_context.h"

namespace lockstep::run {

// Copies share data, model and graphs.
struct PreparedRun : ResolvedRun, RunPlan {
  std::shared_ptr<const plan::RunGraphs> graphs;
  collectives::Topology placed;  // the ranks, as prepare_run() was given them
  RunDefaults defaults;
  // What the run records: the resolved config, in which comm.bucket_mib is the plan's bucket size.
  RunConfig recorded;
  double flops_per_sample = 0;        // of training: forward and backward
  std::vector<std::string> warnings;  // about the run, for the user, once
};

struct PrepareOptions {
  // The checkpoint from which weights will be read, so that train.init_from may be missing; null:
  // none.
  const checkpoint::CheckpointState* checkpoint = nullptr;
  // The data files of a training run may be missing: see data/placeholder.h.
  bool may_assume_data = false;
  double bucket_mib = 0;  // above 0: in place of comm.bucket_mib
  double link_gbit = 0;   // what a node's network sends, as measured; 0: not measured
  bool eager = false;     // no CUDA graphs
};

// Stages 3 to 7, after choose_lanes() and choose_precision(). `placed`: see choose_defaults().
// `ops`: what the device of each rank can run; borrowed. Communicates nothing. Throws ConfigError
// and DataError.
PreparedRun prepare_run(const OpenedConfig& opened,
                        const collectives::Topology& placed,
                        RunPurpose purpose,
                        const exec::OpSet& ops,
                        const PrepareOptions& options = {});

// The warnings about the data, and then those about the run.
std::vector<std::string> warnings_of(const PreparedRun& prepared);

// The same training, planned with buckets of another size.
PreparedRun with_buckets(const PreparedRun& prepared, double bucket_mib);

// The same training with another config: the sections train, optimizer, comm and execution may
// differ from the resolved config of `prepared`, but not the batch or what is trained. Throws
// ConfigError if the run cannot have it.
PreparedRun with_config(const PreparedRun& prepared, const RunConfig& config);

// The same training, planned without memory for a snapshot, so that it waits while checkpoints are
// written.
PreparedRun without_snapshot(const PreparedRun& prepared);

// The same training, planned so that a device adds two lanes at a time, in the least memory.
PreparedRun with_pairs(const PreparedRun& prepared);

// The plan that the same run would have with another global batch, a multiple of the lanes.
plan::Plan plan_for_batch(const PreparedRun& prepared, int64_t global_batch);

// What the trainer and the evaluator work on; refers to all of its arguments. `node`: required if
// the plan's topology shares memory, after allocate_shared(). `folder`: on rank 0, if the run
// writes one.
train::RunContext context_of(const PreparedRun& prepared,
                             collectives::Communicator& communicator,
                             collectives::Communicator& slices,
                             exec::Backend& backend,
                             collectives::NodeMemory* node = nullptr,
                             train::RunFolder* folder = nullptr);

}  // namespace lockstep::run
