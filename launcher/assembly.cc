#include "launcher/assembly.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "launcher/host_memory.h"
#include "runtime/base/threads.h"
#include "runtime/config/parse.h"
#include "runtime/cpu/backend.h"
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

void check_resolved(const RunConfig& config, const OpenedData& data) {
  const auto& schedule = config.schedule;
  if (schedule.warmup_steps >= config.train.steps && schedule.warmup_steps > 0)
    throw ConfigError("schedule.warmup_steps: value is {}; allowed: less than the run's {} steps",
                      schedule.warmup_steps,
                      config.train.steps);
  if (!data.eval && (config.eval.every > 0 || config.eval.early_stop_patience > 0))
    throw ConfigError("eval.every: value is {}, but the data section names no evaluation data",
                      config.eval.every);
  const auto* mlp = std::get_if<MlpConfig>(&config.model);
  if (mlp != nullptr && mlp->loss == Loss::kMeanSquaredError &&
      config.eval.best == EvalConfig::Metric::kAccuracy)
    throw ConfigError(
        "eval.best: value is ACCURACY, which a regression does not have; allowed: LOSS");
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

// The plan for a global batch; used again with smaller ones to find what fits.
Plan plan_for(Assembly& assembly, int64_t global_batch, int ranks, AssemblyPurpose purpose) {
  const RunConfig& config = assembly.config;
  const int lanes = static_cast<int>(config.train.lanes);
  const int64_t lane_batch = global_batch / lanes;
  assembly.training = build_model(config.model, assembly.io, lane_batch, Purpose::kTraining);
  if (assembly.data.eval)
    assembly.evaluation = build_model(config.model, assembly.io, lane_batch, Purpose::kEvaluation);
  PlanOptions options;
  options.ranks = ranks;
  options.lanes = lanes;
  options.bucket_mib = config.comm.bucket_mib;
  options.moments = static_cast<int>(moment_names(config.optimizer).size());
  options.evaluation_only = purpose == AssemblyPurpose::kEvaluate;
  const BatchGeometry geometry = {lane_batch, lanes, 0, lanes / ranks};
  const int64_t wanted = config.execution.prefetch_batches;
  for (const auto& [dataset, bytes, batches] :
       {std::tuple(
            assembly.data.train.get(), &options.train_batch_bytes, &assembly.train_ring_batches),
        std::tuple(
            assembly.data.eval.get(), &options.eval_batch_bytes, &assembly.eval_ring_batches)}) {
    if (dataset == nullptr) continue;
    *bytes = ring_bytes(*dataset, geometry, wanted, *batches);
    options.dataset_bytes += static_cast<size_t>(dataset->resident_bytes());
  }
  return make_plan(assembly.training,
                   assembly.evaluation ? &*assembly.evaluation : nullptr,
                   options,
                   workspace_of(*assembly.backend));
}

}  // namespace

RunConfig read_config(const CommonOptions& options) {
  RunConfig config = load_config(options.config, options.set);
  if (!options.data.empty()) config.data.dir = options.data;
  if (!options.run_dir.empty()) config.output.run_dir = options.run_dir;
  if (config.output.run_dir.empty()) config.output.run_dir = "runs/" + config.name;
  return config;
}

std::string choose_device(const CommonOptions& options) {
  if (options.device == "cuda")
    throw ConfigError(
        "--device: value is cuda, and this build has no CUDA backend; allowed: auto, cpu");
  return "cpu";
}

int choose_threads(const RunConfig& config, int local_ranks) {
  if (config.execution.threads > 0) return static_cast<int>(config.execution.threads);
  const int available = available_cpus();
  // A launcher that binds ranks to cores has done the sharing already.
  const bool bound = available < static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(1, bound ? available : available / local_ranks);
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
    check_resolved(config, assembly.data);
  }
  assembly.config = std::move(config);
  assembly.backend = cpu::make_backend();
  assembly.plan = plan_for(assembly, assembly.config.train.global_batch, ranks, purpose);
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
  Assembly smaller;
  smaller.config = assembly.config;
  smaller.io = assembly.io;
  smaller.backend = cpu::make_backend();
  int64_t batch = assembly.config.train.global_batch;
  const int64_t lanes = assembly.config.train.lanes;
  size_t least = needed(assembly.plan);
  while (batch > lanes && least > available) {
    batch = std::max(lanes, batch / 2 / lanes * lanes);
    Plan plan = plan_for(smaller, batch, assembly.plan.ranks, AssemblyPurpose::kTrain);
    least = needed(plan);
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
