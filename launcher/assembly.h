#pragma once
// From a config to everything that a run is made of.

#include <memory>
#include <optional>

#include "launcher/common_options.h"
#include "models/registry.h"
#include "runtime/config/run_config.h"
#include "runtime/data/dataset.h"
#include "runtime/exec/backend.h"
#include "runtime/plan/plan.h"
#include "runtime/train/run_parts.h"

namespace lockstep {

enum class AssemblyPurpose { kTrain, kEvaluate, kPredict };

// The graphs of a run and their plan.
struct Program {
  Graph training;
  std::optional<Graph> evaluation;  // ends in the loss or, to predict, in the network's output
  Plan plan;
  int64_t train_ring_batches = 0, eval_ring_batches = 0;
  double bucket_mib = 0;  // of the plan
};

struct Assembly : Program {
  AssemblyPurpose purpose = AssemblyPurpose::kTrain;
  RunConfig config;  // resolved: steps, model outputs, folders, buckets
  OpenedData data;
  ModelIo io;
  const OpSet* ops = nullptr;
};

// The config file with overrides applied, and all checked that needs no data. Throws ConfigError.
RunConfig read_config(const std::string& path, const std::vector<std::string>& overrides);

// The same with --set, --data and --run-dir applied.
RunConfig read_config(const CommonOptions& options);

// The type that a precision computes in.
DType compute_type(Precision precision);

// Compute threads of a rank: as configured, or its share of the CPUs that it may use.
int choose_threads(const RunConfig& config, int sharing_ranks);

// Ranks of this host that may use the same CPUs as this one, itself included: all of them where no
// launcher has bound them. All ranks together.
int ranks_sharing_cpus(Communicator& communicator);

// Opens the data, builds the graphs and plans the memory for ranks that are placed so, each with a
// device that can run `ops`. Communicates nothing. Throws ConfigError, DataError.
Assembly assemble(RunConfig config,
                  const Topology& placed,
                  AssemblyPurpose purpose,
                  const OpSet& ops);

// Plans a training again, with buckets of another size.
void plan_again(Assembly& assembly, double bucket_mib);

// Memory that a run can have.
struct MemoryLimits {
  size_t host_bytes = 0;    // of a host, for all of its ranks
  size_t device_bytes = 0;  // of a rank's device, where it has memory of its own
  std::string device;       // its name
};

// Refuses a plan that does not fit, naming the largest global batch that would. Throws MemoryError.
void check_memory(const Assembly& assembly, int local_ranks, const MemoryLimits& limits);

// What the trainer and the evaluator work on; refers to all of its arguments. `node`: where the
// plan's topology shares memory, and with the memory that the plan says.
RunParts parts_of(const Assembly& assembly,
                  Communicator& communicator,
                  Communicator& slices,
                  Backend& backend,
                  NodeMemory* node = nullptr);

}  // namespace lockstep
