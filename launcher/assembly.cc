#include "launcher/assembly.h"

#include <sched.h>

#include <algorithm>
#include <cmath>

#include "collectives/agreement.h"
#include "launcher/host_memory.h"
#include "runtime/base/host.h"
#include "runtime/base/threads.h"
#include "runtime/config/parse.h"
#include "runtime/config/validate.h"
#include "runtime/cpu/backend.h"
#include "runtime/train/batch_stage.h"
#include "runtime/train/optimizer.h"

namespace lockstep {
namespace {

constexpr int64_t kMostSteps = int64_t{1}
                               << 31;  // the step is 32 bits of the random streams' counters

void resolve_length(TrainConfig& train, int64_t samples) {
  if (train.steps == 0) {
    const double steps = std::ceil(train.epochs * static_cast<double>(samples) /
                                   static_cast<double>(train.global_batch));
    if (steps > static_cast<double>(kMostSteps))
      throw ConfigError("train.epochs: value is {}, which is {:.0f} steps; allowed: up to {} steps",
                        train.epochs,
                        steps,
                        kMostSteps);
    train.steps = std::max<int64_t>(static_cast<int64_t>(steps), 1);
    train.epochs = 0;
  }
}

// Bytes of a loader's ring, choosing its length where the config leaves it open.
size_t ring_bytes(const Dataset& dataset,
                  const BatchGeometry& geometry,
                  int64_t wanted,
                  int64_t& batches) {
  batches = wanted > 0 ? wanted : default_ring_batches(loader_bytes(dataset, geometry, 1));
  return loader_bytes(dataset, geometry, batches);
}

WorkspaceBytes workspace_of(const Backend& backend) {
  return [&backend](const Graph& graph, const Op& op) {
    return backend.find(graph, op).workspace_bytes(graph, op);
  };
}

// Builds the graphs for a global batch and plans them.
Program program_for(const RunConfig& config,
                    const ModelIo& io,
                    const OpenedData& data,
                    const Backend& backend,
                    int64_t global_batch,
                    int ranks,
                    AssemblyPurpose purpose) {
  const int lanes = static_cast<int>(config.train.lanes);
  const int64_t lane_batch = global_batch / lanes;
  Program program;
  program.training = build_model(config.model, io, lane_batch, Purpose::kTraining);
  if (data.eval)
    program.evaluation = build_model(config.model, io, lane_batch, Purpose::kEvaluation);
  PlanOptions options;
  options.ranks = ranks;
  options.lanes = lanes;
  options.bucket_mib = config.comm.bucket_mib;
  options.moments = static_cast<int>(moment_names(config.optimizer).size());
  options.evaluation_only = purpose == AssemblyPurpose::kEvaluate;
  const BatchGeometry geometry = {lane_batch, lanes, 0, lanes / ranks};
  const int64_t wanted = config.execution.prefetch_batches;
  for (const auto& [dataset, bytes, batches] :
       {std::tuple(data.train.get(), &options.train_batch_bytes, &program.train_ring_batches),
        std::tuple(data.eval.get(), &options.eval_batch_bytes, &program.eval_ring_batches)}) {
    if (dataset == nullptr) continue;
    *bytes = ring_bytes(*dataset, geometry, wanted, *batches);
    options.dataset_bytes += static_cast<size_t>(dataset->resident_bytes());
  }
  if (backend.separate_memory())
    options.device_batch_bytes =
        BatchStage::bytes_per_lane(program.training) * static_cast<size_t>(lanes / ranks);
  program.plan = make_plan(program.training,
                           program.evaluation ? &*program.evaluation : nullptr,
                           options,
                           workspace_of(backend));
  return program;
}

}  // namespace

RunConfig read_config(const CommonOptions& options) {
  RunConfig config = load_config(options.config, options.set);
  if (!options.data.empty()) config.data.dir = options.data;
  if (!options.run_dir.empty()) config.output.run_dir = options.run_dir;
  if (config.output.run_dir.empty()) config.output.run_dir = "runs/" + config.name;
  return config;
}

void check_device(const CommonOptions& options) {
  if (options.device == "cuda")
    throw ConfigError(
        "--device: value is cuda, and this build has no CUDA backend; allowed: auto, cpu");
}

int choose_threads(const RunConfig& config, int sharing_ranks) {
  if (config.execution.threads > 0) return static_cast<int>(config.execution.threads);
  return std::max(1, available_cpus() / sharing_ranks);
}

int ranks_sharing_cpus(Communicator& communicator) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  sched_getaffinity(0, sizeof(cpus), &cpus);
  std::string mine = host_name() + ":";
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &cpus)) mine += fmt::format(" {}", cpu);
  }
  const std::vector<std::string> all = gather_texts(communicator, mine);
  return static_cast<int>(std::count(all.begin(), all.end(), mine));
}

Assembly assemble(RunConfig config, int ranks, AssemblyPurpose purpose) {
  validate_for_ranks(config, ranks);
  Assembly assembly;
  const bool training = purpose == AssemblyPurpose::kTrain;
  assembly.data = open_data(config.data, config.model, config.seed, training);
  if (!training && !assembly.data.eval)
    throw ConfigError(
        "data: names no evaluation data; give the source's eval file(s) or eval_fraction");
  const DataSummary& summary = assembly.data.summary;
  assembly.io = {summary.features, summary.classes, summary.target_columns};
  config.model = resolve_model(config.model, assembly.io);
  if (training) {
    resolve_length(config.train, assembly.data.train->samples());
    validate_schedule_length(config.schedule, config.train.steps);
  }
  assembly.config = std::move(config);
  assembly.backend = cpu::make_backend();
  static_cast<Program&>(assembly) = program_for(assembly.config,
                                                assembly.io,
                                                assembly.data,
                                                *assembly.backend,
                                                assembly.config.train.global_batch,
                                                ranks,
                                                purpose);
  return assembly;
}

void check_memory(const Assembly& assembly, int local_ranks) {
  const size_t available = available_memory_bytes();
  // The data set is open already and no longer part of what is free.
  const auto needed = [&](const Plan& plan) {
    return (plan.memory_bytes() - plan.row_bytes(kDatasetRow)) * static_cast<size_t>(local_ranks);
  };
  if (needed(assembly.plan) <= available) return;
  // Only the graphs and the plan depend on the batch: plan again, halving.
  int64_t batch = assembly.config.train.global_batch;
  const int64_t lanes = assembly.config.train.lanes;
  size_t least = needed(assembly.plan);
  while (batch > lanes && least > available) {
    batch = std::max(lanes, batch / 2 / lanes * lanes);
    least = needed(program_for(assembly.config,
                               assembly.io,
                               assembly.data,
                               *assembly.backend,
                               batch,
                               assembly.plan.ranks,
                               AssemblyPurpose::kTrain)
                       .plan);
  }
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  const std::string advice = least <= available
                                 ? fmt::format("train.global_batch {} would fit", batch)
                                 : fmt::format("even train.global_batch {} needs {:.2f} GiB",
                                               batch,
                                               static_cast<double>(least) / kGiB);
  throw MemoryError(
      "the run needs {:.2f} GiB on this host ({} rank{}), {:.2f} GiB are free; {}; `lockstep plan` "
      "shows what for",
      static_cast<double>(needed(assembly.plan)) / kGiB,
      local_ranks,
      local_ranks == 1 ? "" : "s",
      static_cast<double>(available) / kGiB,
      advice);
}

RunParts parts_of(const Assembly& assembly, Communicator& communicator) {
  return {assembly.config,
          communicator,
          *assembly.backend,
          assembly.training,
          assembly.evaluation ? &*assembly.evaluation : nullptr,
          assembly.plan,
          assembly.data,
          assembly.config.output.run_dir,
          assembly.train_ring_batches,
          assembly.eval_ring_batches,
          model_flops_per_sample(assembly.config.model, assembly.io)};
}

}  // namespace lockstep
