#pragma once
// From a config to everything that a run is made of.

#include <optional>
#include <string>
#include <vector>

#include "models/registry.h"
#include "runtime/config/run_config.h"
#include "runtime/data/dataset.h"
#include "runtime/exec/backend.h"
#include "runtime/plan/plan.h"
#include "runtime/run/decisions.h"
#include "runtime/train/run_parts.h"

namespace lockstep {

struct CheckpointState;

// The graphs of a run and their plan.
struct Program {
  Graph training;
  std::optional<Graph> evaluation;  // ends in the loss or, to predict, in the network's output
  // For the lengths of execution.length_buckets; of an evaluation whose result has another shape
  // then, none.
  std::vector<Graph> shorter_training, shorter_evaluation;
  Plan plan;
  int64_t train_ring_batches = 0, eval_ring_batches = 0;  // read ahead by the loaders
};

struct Assembly : Program {
  RunPurpose purpose = RunPurpose::kTrain;
  RunConfig config;  // resolved: steps, model outputs, folders, buckets
  OpenedData data;
  ModelIo io;
  const OpSet* ops = nullptr;
  RunDecisions decisions;
  std::vector<std::string> warnings;  // for the user, once
};

// Opens the data, builds the graphs and plans the memory for ranks that are placed so, each with a
// device that can run `ops`, which is borrowed; `placed`: see decide(). With `may_assume_data` the
// files of a training need not be here: see data/assumed.h. `checkpoint`: what weights will be read
// from, so that train.init_from need not be here; null: none. Communicates nothing. Throws
// ConfigError, DataError.
Assembly assemble(RunConfig config,
                  const Topology& placed,
                  RunPurpose purpose,
                  const OpSet& ops,
                  const CheckpointState* checkpoint = nullptr,
                  bool may_assume_data = false);

// The program that the same run would have with another global batch, a multiple of the lanes.
Program program_for(const Assembly& assembly, int64_t global_batch);

// Plans a training again, with buckets of another size.
void plan_again(Assembly& assembly, double bucket_mib);

// Plans a training again, whose checkpoints are waited for: without memory for a copy.
void drop_snapshot(Assembly& assembly);

// What the trainer and the evaluator work on; refers to all of its arguments. `node`: where the
// plan's topology shares memory, and with the memory that the plan says. `folder`: of rank 0, where
// the run writes one.
RunParts parts_of(const Assembly& assembly,
                  Communicator& communicator,
                  Communicator& slices,
                  Backend& backend,
                  NodeMemory* node = nullptr,
                  RunFolder* folder = nullptr);

}  // namespace lockstep
