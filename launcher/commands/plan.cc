// lockstep plan CONFIG --ranks N
#include <fmt/core.h>

#include <cstdio>
#include <limits>

#include "collectives/agreement.h"
#include "launcher/bench/bucket_record.h"
#include "launcher/bench/tune_buckets.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/results.h"
#include "launcher/ranks/devices.h"
#include "launcher/ranks/gpu_models.h"
#include "launcher/ranks/host_memory.h"
#include "runtime/base/log.h"
#include "runtime/base/threads.h"
#include "runtime/graph/schema.h"
#include "runtime/run/assembly.h"
#include "runtime/run/memory_check.h"
#include "runtime/run/threads.h"

namespace lockstep {
namespace {

struct PlanCommandOptions {
  CommonOptions common;
  int ranks = 0;
  int ranks_per_node = 0;
  bool activations = false;
  std::string gpu;             // --gpu: plan for this one
  double host_memory_gib = 0;  // --host-memory; 0: of this host, or of none where --gpu is given
};

std::string in_units(double bytes) {
  constexpr double kMiB = 1024.0 * 1024;
  return bytes < 1024 * kMiB ? fmt::format("{:.1f} MiB", bytes / kMiB)
                             : fmt::format("{:.2f} GiB", bytes / kMiB / 1024);
}

// Where each tensor of the training graph lies in the arena.
void print_placements(const Assembly& assembly) {
  fmt::print("\n{:<44}{:>14}{:>14}{:>8}{:>8}\n",
             "arena of the training graph",
             "offset",
             "bytes",
             "from op",
             "to op");
  for (const Placement& placement : assembly.plan.training.placements) {
    const std::string name =
        placement.tensor != kNoTensor
            ? assembly.training[placement.tensor].name
            : "workspace of " + assembly.training.ops[static_cast<size_t>(placement.first_op)].name;
    fmt::print("  {:<42}{:>14}{:>14}{:>8}{:>8}\n",
               name,
               placement.offset,
               placement.bytes,
               placement.first_op,
               placement.last_op);
  }
}

Json to_json(const Assembly& assembly, int local, double step_flops) {
  Json json;
  json["ranks"] = assembly.plan.topology.ranks();
  json["lanes"] = assembly.plan.lanes;
  json["parameters"] = assembly.plan.layout.parameters;
  for (const MemoryRow& row : assembly.plan.memory) json["memory_bytes"][row.name] = row.bytes;
  json["memory_bytes_total"] = assembly.plan.memory_bytes();
  if (assembly.ops->separate_memory) json["memory_bytes_gpu"] = assembly.plan.device_bytes();
  json["flops_per_step_per_rank"] = step_flops;
  json["wire_bytes_per_step_per_rank"] = assembly.plan.wire_bytes;
  // Without a level of nodes the plan does not tell which of its ranks are on other ones.
  if (assembly.plan.topology.nodes > 1 || local == assembly.plan.topology.ranks())
    json["network_bytes_per_step_per_rank"] = assembly.plan.network_bytes;
  json["bucket_mib"] = assembly.decisions.bucket_mib;
  json["buckets"] = assembly.plan.buckets.size();
  for (size_t i = 0; i < assembly.plan.shorter_training.size(); ++i)
    json["arena_bytes_by_length"][std::to_string(assembly.config.execution.length_buckets[i])] =
        assembly.plan.shorter_training[i].arena_bytes;
  json["steps"] = assembly.config.train.steps;
  const std::string& assumed = assembly.data.summary.assumed;
  if (!assumed.empty()) json["assumed"] = assumed;
  return json;
}

// Whether the hosts are others, of which nothing is known.
bool is_elsewhere(const PlanCommandOptions& options) {
  return !options.gpu.empty() && options.host_memory_gib == 0;
}

// What a host has for all of its ranks.
size_t host_memory(const PlanCommandOptions& options) {
  if (is_elsewhere(options)) return std::numeric_limits<size_t>::max();
  if (options.host_memory_gib > 0) return static_cast<size_t>(options.host_memory_gib * 0x1p30);
  return available_memory_bytes();
}

// A line for each length of execution.length_buckets: what a lane whose samples fit takes.
void print_lengths(const Assembly& assembly) {
  const std::vector<int64_t>& lengths = assembly.config.execution.length_buckets;
  const ProgramPlan& whole = assembly.plan.training;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const ProgramPlan& plan = assembly.plan.shorter_training[i];
    fmt::print("lanes of up to {} tokens: {:.3g} of the work, {} of activations and workspace\n",
               lengths[i],
               static_cast<double>(plan.flops) / static_cast<double>(whole.flops),
               in_units(static_cast<double>(plan.arena_bytes)));
  }
}

// The text for a reader: the memory table, then the work, the traffic and the length of the run.
void print_plan(const PlanCommandOptions& options,
                const Assembly& assembly,
                int local,
                double step_flops) {
  const Plan& plan = assembly.plan;
  fmt::print("{}\n\n{}", assembly.data.summary.description, memory_table(plan));
  const size_t host = plan.host_bytes(local);
  fmt::print("  {} on a host with {} rank{}{}\n\n",
             in_units(static_cast<double>(host)),
             local,
             local == 1 ? "" : "s",
             is_elsewhere(options)
                 ? ""
                 : fmt::format("; {} has {} free",
                               options.host_memory_gib > 0 ? "a host" : "this host",
                               in_units(static_cast<double>(host_memory(options)))));
  const int rank_lanes = plan.lanes / plan.topology.ranks();
  const std::string traffic =
      plan.topology.shares_memory && plan.wire_bytes == 0
          ? "nothing sent (the ranks share memory)"
          : in_units(static_cast<double>(plan.wire_bytes)) + " sent and as much received";
  fmt::print("a step of one rank: {:.3f} GFLOP in {} lane{}, {} in {} bucket{}\n",
             step_flops / 1e9,
             rank_lanes,
             rank_lanes == 1 ? "" : "s",
             traffic,
             plan.buckets.size(),
             plan.buckets.size() == 1 ? "" : "s");
  print_lengths(assembly);
  if (plan.topology.nodes > 1)
    fmt::print("of that to other nodes: {} a rank, {} a node of {} rank{}\n",
               in_units(static_cast<double>(plan.network_bytes)),
               in_units(static_cast<double>(plan.network_bytes * plan.topology.per_node)),
               plan.topology.per_node,
               plan.topology.per_node == 1 ? "" : "s");
  fmt::print("the run: {} steps of {} samples\n",
             assembly.config.train.steps,
             assembly.config.train.global_batch);
  fmt::print("decided: {}\n", to_text(assembly.decisions));
}

// What the device of the run has: the GPU named, or else the one that is here, if one is.
MemoryLimits limits_for(const PlanCommandOptions& options, const Assembly& assembly) {
  MemoryLimits limits{host_memory(options), assembly.plan.device_bytes(), "a GPU"};
  if (options.host_memory_gib > 0) limits.host = "a host";
  if (!options.gpu.empty()) {
    limits.device_bytes = run_bytes_of_gpu(options.gpu);
    limits.device = "a GPU of kind " + options.gpu;
  } else if (assembly.ops->separate_memory && !gpu_here(limits)) {
    fmt::print("no GPU here to compare with; name one with --gpu\n");
  }
  return limits;
}

// As many ranks on every node but the last one, and such that share memory.
Topology nodes_of(int ranks, int per_node) {
  std::vector<std::string> nodes;
  for (int rank = 0; rank < ranks; ++rank) nodes.push_back(std::to_string(rank / per_node));
  Topology topology = topology_of(nodes);
  topology.shares_memory = topology.per_node > 1 && topology.per_node == per_node;
  return topology;
}

// With comm.tune_buckets, for several ranks: which size the plan is for, the one that the run
// folder has on record or else the config's.
void print_tuned_buckets(const RunConfig& config, bool recorded) {
  if (recorded) {
    fmt::print("comm.bucket_mib is {:g}, which comm.tune_buckets chose: {}\n",
               config.comm.bucket_mib,
               bucket_record_path(config.output.run_dir).string());
    return;
  }
  std::string sizes;
  for (const double size : bucket_candidates(config.comm.bucket_mib))
    sizes += fmt::format("{}{:g}", sizes.empty() ? "" : ", ", size);
  fmt::print(
      "this is with comm.bucket_mib {:g}; comm.tune_buckets will choose one of {} for the run\n",
      config.comm.bucket_mib,
      sizes);
}

// Plans on this rank for as many ranks as the options say, or else for `world`.
void plan_here(const PlanCommandOptions& options, int world) {
  check_result_path("--json", options.common.json);
  RunConfig config = read_config(options.common);
  CommonOptions device = options.common;
  if (!options.gpu.empty()) {
    if (device.device == "cpu")
      throw ConfigError("--gpu: value is {}; not allowed with --device cpu, or LOCKSTEP_DEVICE=cpu",
                        options.gpu);
    device.device = "cuda";
    run_bytes_of_gpu(options.gpu);  // an unknown name is refused before anything is read
  }
  const int ranks = options.ranks > 0 ? options.ranks : world;
  const int local = options.ranks_per_node > 0 ? options.ranks_per_node : ranks;
  if (local > ranks)
    throw ConfigError(
        "--ranks-per-node: value is {}; allowed: 1 to --ranks ({})", options.ranks_per_node, ranks);
  const bool tunes = config.comm.tune_buckets && ranks > 1;
  const auto record = tunes ? read_bucket_record(config.output.run_dir) : std::nullopt;
  if (record) config.comm.bucket_mib = record->bucket_mib;
  // Given ones may be those of another machine.
  const auto threads = static_cast<int>(config.execution.threads);
  set_compute_threads(threads > 0 ? threads
                                  : choose_threads(config, share_of(find_cpu_limits(), local)));
  const Assembly assembly = assemble(std::move(config),
                                     nodes_of(ranks, local),
                                     RunPurpose::kTrain,
                                     ops_to_plan_for(device),
                                     /*checkpoint=*/nullptr,
                                     /*may_assume_data=*/true);
  for (const std::string& warning : assembly.warnings) log_warn("{}", warning);
  const double step_flops =
      static_cast<double>(assembly.plan.training.flops) * assembly.plan.lanes / ranks;
  print_plan(options, assembly, local, step_flops);
  if (tunes) print_tuned_buckets(assembly.config, record.has_value());
  if (options.activations) print_placements(assembly);
  std::fflush(stdout);
  write_json(options.common.json, to_json(assembly, local, step_flops));
  check_memory(assembly, local, limits_for(options, assembly));
}

ExitCode plan(Session& session, const PlanCommandOptions& options) {
  Communicator& communicator = session.communicator();
  init_log(options.common.log_level, communicator.rank(), communicator.size());
  run_on_root(communicator, [&] { plan_here(options, communicator.size()); });
  return ExitCode::kOk;
}

}  // namespace

CommandSpec plan_command() {
  auto options = std::make_shared<PlanCommandOptions>();
  CommandSpec command{
      .name = "plan",
      .help = "Print the exact memory of a run, its work and its traffic, without running it"};
  add_common_options(command, options->common);
  command.add("--ranks",
              &options->ranks,
              "Ranks to plan for; by default those of this command",
              {.allowed = AtLeast{1}});
  command.add("--ranks-per-node",
              &options->ranks_per_node,
              "Ranks that share a host; by default all",
              {.allowed = AtLeast{1}});
  command.add(
      "--gpu",
      &options->gpu,
      "Plan for a GPU of this kind, which need not be here: H200, A100-80GB, ... or its GiB");
  command.add(
      "--host-memory",
      &options->host_memory_gib,
      "GiB that each host has; by default those free on this one, or, with --gpu, not asked",
      {.allowed = Between{0, 1e9}});
  command.add("--activations", &options->activations, "Also print where each activation lies");
  command.footer =
      "Data files need not be here where the config says what they would be: the plan then says "
      "what it assumed.\n"
      "Ends with exit code 5 when the run would not fit in a host's memory, or the GPU's.";
  command.run = [options](Session& session) { return plan(session, *options); };
  return command;
}

}  // namespace lockstep
