#include "launcher/assembly.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "collectives/agreement.h"
#include "runtime/base/host.h"
#include "runtime/base/threads.h"
#include "runtime/config/parse.h"
#include "runtime/config/sections.h"
#include "runtime/config/validate.h"
#include "runtime/config/validate_data.h"
#include "runtime/graph/fusion.h"
#include "runtime/graph/schema.h"
#include "runtime/train/batch_stage.h"
#include "runtime/train/optimizer.h"
#include "runtime/train/weight_average.h"

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

// A device that computes in fp32 alone, or that has no way to run an op, says so before anything is
// planned.
void check_supported(const RunConfig& config, const OpSet& ops) {
  const ExecutionConfig& execution = config.execution;
  if (ops.separate_memory) {
    if (execution.bf16x3)
      throw ConfigError(
          "execution.bf16x3: value is true; allowed on {}: false (execution.tf32 is for GPUs)",
          ops.device);
    return;
  }
  if (execution.precision != Precision::kFp32)
    throw ConfigError(
        "execution.precision: value is {}; allowed on {}: FP32 (a GPU has BF16 and FP16)",
        execution.precision == Precision::kBf16 ? "BF16" : "FP16",
        ops.device);
  if (execution.tf32)
    throw ConfigError("execution.tf32: value is true; allowed on {}: false", ops.device);
}

// A layer-wise optimizer keeps a rate for every tensor, of which a device holds so many.
void check_supported(const OptimizerConfig& optimizer,
                     const ParameterLayout& layout,
                     const OpSet& ops) {
  const size_t groups = Optimizer::groups(optimizer, layout);
  if (groups <= ops.most_update_groups) return;
  const size_t tensors = adapted_slots(optimizer, layout).size();
  throw ConfigError(
      "optimizer.{}: the model has {} tensors with a rate of their own; allowed on {}: up to {}, "
      "or --device cpu",
      optimizer_name(optimizer),
      tensors,
      ops.device,
      ops.most_update_groups - (groups - tensors));
}

// Lanes that run together are summed together.
void check_supported(const CommConfig& comm, const Plan& plan) {
  const int ranks = plan.topology.ranks();
  if (plan.zero_stage < 2 || !plan.lanes_together || plan.lanes == ranks) return;
  throw ConfigError(
      "comm.zero_stage: value is {}; allowed with sync_batch_norm, whose lanes run together: 0, 1, "
      "or "
      "{} with as many ranks as train.lanes, {}, of which there are {}",
      comm.zero_stage,
      comm.zero_stage,
      plan.lanes,
      ranks);
}

void check_supported(const ModelConfig& model, const Graph& graph, const OpSet& ops) {
  for (const Op& op : graph.ops) {
    if (ops.supports(graph, op)) continue;
    const bool any = std::any_of(ops.implementations.begin(),
                                 ops.implementations.end(),
                                 [&](const Implementation& i) { return i.kind == op.kind; });
    if (!any)
      throw ConfigError("model.{}: device {} cannot run {} yet; allowed: --device cpu",
                        section_of(model),
                        ops.device,
                        schema_of(op.kind).name);
    throw ConfigError(
        "model.{}: device {} cannot run '{}' ({} of {}): it is beyond what its kernels take; "
        "allowed: a "
        "narrower model, or a smaller train.global_batch / train.lanes",
        section_of(model),
        ops.device,
        op.name,
        schema_of(op.kind).name,
        to_string(graph.shape(op.inputs[0])));
  }
}

// The same on any number of ranks. Where the memory for gradients has buckets, or on GPUs, whose
// networks the cost model does not know: the usual size.
double bucket_mib_of(const CommConfig& comm, const Graph& training, const OpSet& ops) {
  constexpr double kMiB = 1024.0 * 1024;
  if (comm.bucket_mib > 0) return comm.bucket_mib;
  if (ops.separate_memory || comm.zero_stage >= 2)
    return static_cast<double>(kUsualBucketElements) * sizeof(float) / kMiB;
  return usual_bucket_mib(training, compute_type(comm.wire_dtype));
}

// Builds the graphs for a global batch and plans them.
Program program_for(const RunConfig& config,
                    const ModelIo& io,
                    const OpenedData& data,
                    const OpSet& ops,
                    int64_t global_batch,
                    const Topology& topology,
                    AssemblyPurpose purpose) {
  const int ranks = topology.ranks();
  const int lanes = static_cast<int>(config.train.lanes);
  const int64_t lane_batch = global_batch / lanes;
  const auto graph_for = [&](Purpose graph_purpose) {
    GraphOptions options(graph_purpose);
    options.compute = compute_type(config.execution.precision);
    options.logits_alignment = ops.logits_alignment;
    options.lanes = lanes;
    options.bf16x3 = config.execution.bf16x3;
    options.recompute = config.execution.recompute == ExecutionConfig::Recompute::kBlocks;
    Graph graph = build_model(config.model, io, lane_batch, options);
    check_supported(config.model, graph, ops);
    fuse_batch_norms(graph, [&ops](const Graph& g, const Op& op) { return ops.supports(g, op); });
    return graph;
  };
  Program program;
  program.training = graph_for(Purpose::kTraining);
  const bool predicts = purpose == AssemblyPurpose::kPredict;
  if (data.eval)
    program.evaluation = graph_for(predicts ? Purpose::kInference : Purpose::kEvaluation);
  PlanOptions options;
  options.topology = topology;
  options.zero_stage = purpose == AssemblyPurpose::kTrain && ranks > 1
                           ? static_cast<int>(config.comm.zero_stage)
                           : 1;
  options.lanes = lanes;
  options.wire = compute_type(config.comm.wire_dtype);
  program.bucket_mib = options.bucket_mib = bucket_mib_of(config.comm, program.training, ops);
  options.moments = static_cast<int>(kept_arrays(config).size());
  options.evaluation_only = purpose != AssemblyPurpose::kTrain;
  const BatchGeometry geometry = {lane_batch, lanes, 0, lanes / ranks};  // sizes alone count
  const int64_t wanted = config.execution.prefetch_batches;
  for (const auto& [dataset, bytes, batches] :
       {std::tuple(data.train.get(), &options.train_batch_bytes, &program.train_ring_batches),
        std::tuple(data.eval.get(), &options.eval_batch_bytes, &program.eval_ring_batches)}) {
    if (dataset == nullptr) continue;
    *bytes = ring_bytes(*dataset, geometry, wanted, *batches);
    options.dataset_bytes += static_cast<size_t>(dataset->resident_bytes());
  }
  if (purpose == AssemblyPurpose::kTrain) {
    options.residual_groups = residual_groups(config);
    options.power_sgd = static_cast<int>(config.comm.power_sgd_rank);
  }
  options.separate_memory = ops.separate_memory;
  if (ops.separate_memory) {
    options.library_bytes = ops.workspace_bytes;
    options.device_batch_bytes =
        BatchStage::device_bytes(program.training, static_cast<size_t>(lanes / ranks));
  }
  program.plan = make_plan(program.training,
                           program.evaluation ? &*program.evaluation : nullptr,
                           options,
                           [&ops](const Graph& graph, const Op& op) {
                             return ops.find(graph, op).workspace_bytes(graph, op);
                           });
  return program;
}

// In ZeRO stage 0 the ranks of a node would have sums in common, but not what comes from others.
bool may_share_memory(const RunConfig& config, const Topology& topology) {
  if (!config.comm.shared_memory || topology.per_node == 1) return false;
  if (config.comm.zero_stage == 0) return topology.nodes == 1 && config.comm.power_sgd_rank == 0;
  return config.comm.zero_stage < 3;
}

}  // namespace

RunConfig read_config(const std::string& path, const std::vector<std::string>& overrides) {
  RunConfig config = load_config(path, overrides);
  check_model(config);
  validate_data_for_model(config.data, traits_of(config.model));
  return config;
}

RunConfig read_config(const CommonOptions& options) {
  RunConfig config = read_config(options.config, options.set);
  if (!options.data.empty()) config.data.dir = options.data;
  if (!options.run_dir.empty()) config.output.run_dir = options.run_dir;
  if (config.output.run_dir.empty()) config.output.run_dir = "runs/" + config.name;
  return config;
}

DType compute_type(Precision precision) {
  switch (precision) {
    case Precision::kBf16: return DType::kBF16;
    case Precision::kFp16: return DType::kF16;
    case Precision::kFp32: break;
  }
  return DType::kF32;
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

Assembly assemble(RunConfig config,
                  const Topology& placed,
                  AssemblyPurpose purpose,
                  const OpSet& ops) {
  const int ranks = placed.ranks();
  if (purpose != AssemblyPurpose::kTrain) config.comm.residual_groups = 0;  // nothing is summed
  validate_for_ranks(config, ranks);
  check_supported(config, ops);
  // A library that chooses the order knows the nodes itself.
  const bool fast = config.comm.order == CommConfig::Order::kFast;
  Topology topology = fast ? Topology::flat(ranks) : placed;
  topology.shares_memory = topology.shares_memory && may_share_memory(config, topology) &&
                           !ops.separate_memory && purpose == AssemblyPurpose::kTrain;
  for (const RankGroup& group : placed.groups_of(0)) {
    if (fast || group.count <= ops.most_tree_ranks) continue;
    throw ConfigError(
        "comm.order: value is TREE; allowed where sums of {} ranks meet on device {}: FAST (TREE "
        "for "
        "up to {} ranks a node, as many on each, and up to {} nodes)",
        group.count,
        ops.device,
        ops.most_tree_ranks,
        ops.most_tree_ranks);
  }
  Assembly assembly;
  assembly.purpose = purpose;
  const bool training = purpose == AssemblyPurpose::kTrain;
  assembly.data = open_data(config.data, traits_of(config.model), config.seed, training);
  if (!training && !assembly.data.eval)
    throw ConfigError(
        "data: names no evaluation data; give the source's eval file(s) or eval_fraction");
  const DataSummary& summary = assembly.data.summary;
  assembly.io = {.features = summary.features,
                 .classes = summary.classes,
                 .target_columns = summary.target_columns,
                 .height = summary.height,
                 .width = summary.width,
                 .channels = summary.channels,
                 .mean = summary.mean,
                 .std = summary.std};
  config.model = resolve_model(config.model, assembly.io);
  if (training) {
    resolve_length(config.train, assembly.data.train->samples());
    validate_schedule_length(config.schedule, config.train.steps);
  }
  assembly.config = std::move(config);
  assembly.ops = &ops;
  static_cast<Program&>(assembly) = program_for(assembly.config,
                                                assembly.io,
                                                assembly.data,
                                                ops,
                                                assembly.config.train.global_batch,
                                                topology,
                                                purpose);
  assembly.config.comm.bucket_mib = assembly.bucket_mib;
  if (training) {
    check_supported(assembly.config.comm, assembly.plan);
    check_supported(assembly.config.optimizer, assembly.plan.layout, ops);
  }
  return assembly;
}

void plan_again(Assembly& assembly, double bucket_mib) {
  assembly.config.comm.bucket_mib = bucket_mib;
  const Topology topology = assembly.plan.topology;
  static_cast<Program&>(assembly) = program_for(assembly.config,
                                                assembly.io,
                                                assembly.data,
                                                *assembly.ops,
                                                assembly.config.train.global_batch,
                                                topology,
                                                assembly.purpose);
}

namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

// What a plan needs of one kind of memory, and what there is.
struct Need {
  std::function<size_t(const Plan& plan)> bytes;
  int ranks;  // that share it
  size_t available;
  std::string where;
};

// Only the graphs and the plan depend on the batch: plan again, halving.
void check_need(const Assembly& assembly, const Need& need) {
  if (need.bytes(assembly.plan) <= need.available) return;
  const int64_t lanes = assembly.config.train.lanes;
  const auto needed_with = [&](int64_t batch) {
    return need.bytes(program_for(assembly.config,
                                  assembly.io,
                                  assembly.data,
                                  *assembly.ops,
                                  batch,
                                  assembly.plan.topology,
                                  assembly.purpose)
                          .plan);
  };
  // The largest multiple of the lanes that fits, by bisection: the need grows with the batch.
  int64_t fits = 0, fails = assembly.config.train.global_batch / lanes;
  while (fails - fits > 1) {
    const int64_t middle = fits + (fails - fits) / 2;
    (needed_with(middle * lanes) <= need.available ? fits : fails) = middle;
  }
  const std::string advice = fits > 0 ? fmt::format("train.global_batch {} would fit", fits * lanes)
                                      : fmt::format("even train.global_batch {} needs {:.2f} GiB",
                                                    lanes,
                                                    static_cast<double>(needed_with(lanes)) / kGiB);
  throw MemoryError(
      "the run needs {:.2f} GiB {} ({} rank{}), {:.2f} GiB are free; {}; `lockstep plan` shows "
      "what "
      "for",
      static_cast<double>(need.bytes(assembly.plan)) / kGiB,
      need.where,
      need.ranks,
      need.ranks == 1 ? "" : "s",
      static_cast<double>(need.available) / kGiB,
      advice);
}

}  // namespace

void check_memory(const Assembly& assembly, int local_ranks, const MemoryLimits& limits) {
  check_need(assembly,
             {[](const Plan& plan) { return plan.device_bytes(); },
              1,
              limits.device_bytes,
              "on " + limits.device});
  check_need(assembly,
             {[=](const Plan& plan) { return plan.host_bytes(local_ranks); },
              local_ranks,
              limits.host_bytes,
              "on this host"});
}

RunParts parts_of(const Assembly& assembly,
                  Communicator& communicator,
                  Communicator& slices,
                  Backend& backend,
                  NodeMemory* node) {
  return {assembly.config,
          communicator,
          slices,
          node,
          backend,
          assembly.training,
          assembly.evaluation ? &*assembly.evaluation : nullptr,
          assembly.plan,
          assembly.data,
          assembly.config.output.run_dir,
          assembly.train_ring_batches,
          assembly.eval_ring_batches,
          model_flops_per_sample(assembly.config.model, assembly.io),
          traits_of(assembly.config.model)};
}

}  // namespace lockstep
