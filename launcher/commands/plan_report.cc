#include "launcher/commands/plan_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "launcher/bench/bucket_record.h"
#include "launcher/ranks/devices.h"
#include "launcher/ranks/domain_ranks.h"
#include "launcher/ranks/host_memory.h"
#include "runtime/base/text.h"
#include "runtime/config/parse.h"

namespace lockstep::launcher {
namespace {

std::string in_units(double bytes) {
  constexpr double kMiB = 1024.0 * 1024;
  return bytes < 1024 * kMiB ? fmt::format("{:.1f} MiB", bytes / kMiB)
                             : fmt::format("{:.2f} GiB", bytes / kMiB / 1024);
}

// Whether the run is for other hosts, whose memory is not known.
bool is_elsewhere(const PlanCommandOptions& options) {
  return !hardware_name(options).empty() && options.host_memory_gib == 0;
}

// The memory of a host, for all of its ranks.
size_t host_memory(const PlanCommandOptions& options) {
  if (is_elsewhere(options)) return std::numeric_limits<size_t>::max();
  if (options.host_memory_gib > 0) return static_cast<size_t>(options.host_memory_gib * 0x1p30);
  return available_memory_bytes();
}

// Prints a line for each length of execution.length_buckets: the cost of a lane whose samples fit.
void print_lengths(const run::PreparedRun& prepared) {
  const std::vector<int64_t>& lengths = prepared.config.execution.length_buckets;
  const plan::ProgramPlan& whole = prepared.plan.programs.training;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const plan::ProgramPlan& plan = prepared.plan.programs.length_bucket_training[i];
    fmt::print("lanes of up to {} tokens: {:.3g} of the work, {} of activations and workspace\n",
               lengths[i],
               static_cast<double>(plan.flops) / static_cast<double>(whole.flops),
               in_units(static_cast<double>(plan.arena_bytes)));
  }
}

}  // namespace

Json plan_json(const run::PreparedRun& prepared,
               const run::LaneUse& lanes,
               int local,
               double step_flops) {
  Json json;
  json["ranks"] = prepared.plan.sharding.topology.ranks();
  json["lanes"] = prepared.plan.sharding.lanes;
  json["lanes_per_rank"] = lanes.most;
  json["lane_efficiency"] = lanes.efficiency;
  json["precision"] = lockstep::name_of(prepared.config.execution.precision);
  json["parameters"] = prepared.plan.layout.parameters;
  for (const plan::MemoryRow& row : prepared.plan.memory.rows)
    json["memory_bytes"][plan::name_of(row.kind)] = row.bytes;
  json["memory_bytes_total"] = prepared.plan.memory.total_bytes();
  if (prepared.ops->separate_memory) json["memory_bytes_gpu"] = prepared.plan.memory.device_bytes();
  json["flops_per_step_per_rank"] = step_flops;
  json["wire_bytes_per_step_per_rank"] = prepared.plan.traffic.wire_bytes;
  // Without a level of nodes the plan does not know which of its ranks are on other nodes.
  if (prepared.plan.sharding.topology.nodes > 1 || local == prepared.plan.sharding.topology.ranks())
    json["network_bytes_per_step_per_rank"] = prepared.plan.traffic.network_bytes;
  json["bucket_mib"] = prepared.defaults.bucket_mib;
  json["buckets"] = prepared.plan.layout.buckets.size();
  for (size_t i = 0; i < prepared.plan.programs.length_bucket_training.size(); ++i)
    json["arena_bytes_by_length"][std::to_string(prepared.config.execution.length_buckets[i])] =
        prepared.plan.programs.length_bucket_training[i].arena_bytes;
  json["steps"] = prepared.config.train.steps;
  const std::string& placeholder = prepared.data->summary.placeholder;
  if (!placeholder.empty()) json["assumed"] = placeholder;
  return json;
}

void print_plan(const PlanCommandOptions& options,
                const run::PreparedRun& prepared,
                const std::string& choices,
                const run::LaneUse& lanes,
                int local,
                double step_flops) {
  const plan::Plan& plan = prepared.plan;
  fmt::print("{}\n\n{}", prepared.data->summary.description, plan::memory_table(plan.memory));
  const size_t host = plan.memory.host_bytes(local);
  fmt::print("  {} on a host with {} rank{}{}\n\n",
             in_units(static_cast<double>(host)),
             local,
             plural(local),
             is_elsewhere(options)
                 ? ""
                 : fmt::format("; {} has {} free",
                               options.host_memory_gib > 0 ? "a host" : "this host",
                               in_units(static_cast<double>(host_memory(options)))));
  const std::string traffic =
      plan.sharding.topology.shares_memory && plan.traffic.wire_bytes == 0
          ? "nothing sent (the ranks share memory)"
          : in_units(static_cast<double>(plan.traffic.wire_bytes)) + " sent and as much received";
  fmt::print("a step of one rank: {:.3f} GFLOP in {} lane{}, {} in {} bucket{}\n",
             step_flops / 1e9,
             lanes.most,
             plural(lanes.most),
             traffic,
             plan.layout.buckets.size(),
             plural(plan.layout.buckets.size()));
  if (!lanes.warning.empty()) fmt::print("{}\n", lanes.warning);
  print_lengths(prepared);
  if (plan.sharding.topology.nodes > 1)
    fmt::print(
        "of that to other nodes: {} a rank, {} a node of {} rank{}\n",
        in_units(static_cast<double>(plan.traffic.network_bytes)),
        in_units(static_cast<double>(plan.traffic.network_bytes * plan.sharding.topology.per_node)),
        plan.sharding.topology.per_node,
        plural(plan.sharding.topology.per_node));
  fmt::print("the run: {} steps of {} samples\n",
             prepared.config.train.steps,
             prepared.config.train.global_batch);
  fmt::print("decided: {}, {}\n", choices, run::to_text(prepared.defaults));
}

void print_tuned_buckets(const RunConfig& config, bool recorded) {
  if (recorded) {
    fmt::print("comm.bucket_mib is {:g}, which comm.tune_buckets chose: {}\n",
               config.comm.bucket_mib,
               bucket_record_path(config.output.run_dir).string());
    return;
  }
  std::string sizes;
  for (const double size : bucket_candidates(config.comm.bucket_mib))
    append_item(sizes, fmt::format("{:g}", size));
  fmt::print(
      "this is with comm.bucket_mib {:g}; comm.tune_buckets will choose one of {} for the run\n",
      config.comm.bucket_mib,
      sizes);
}

void propose_domain_ranks(const PlanCommandOptions& options,
                          const run::PreparedRun& prepared,
                          Json& json) {
  if (prepared.ops->separate_memory) return;
  const DomainRanks domains = plan_domain_ranks(find_cpu_domains(), find_cpu_limits());
  const int ranks = static_cast<int>(domains.ranks.size());
  if (ranks == 1) return;
  const auto configured = static_cast<int>(prepared.config.execution.threads);
  const auto threads_of = [&](const DomainRanks::Rank& rank) {
    return configured > 0 ? configured : rank.threads;
  };
  const std::string command = "lockstep launch -- train " + options.common.config;
  Json& proposal = json["domain_ranks"];
  proposal = Json::object({{"reason", domains.reason}, {"command", command}});
  for (const DomainRanks::Rank& rank : domains.ranks)
    proposal["ranks"].push_back(Json::object(
        {{"cpus", rank.domain.cpus}, {"cores", rank.domain.cores}, {"threads", threads_of(rank)}}));
  const auto [least, most] = std::ranges::minmax(domains.ranks, {}, threads_of);
  fmt::print("this host has {}: start {} ranks a node with {} each: {}\n",
             domains.reason,
             ranks,
             counted_range(threads_of(least), threads_of(most), "thread"),
             command);
  try {
    config::validate_for_ranks(prepared.config, ranks);
  } catch (const ConfigError& error) {
    proposal["error"] = error.what();
    fmt::print("launch would reject that: {}\n", error.what());
  }
}

void print_placements(const run::PreparedRun& prepared) {
  fmt::print("\n{:<44}{:>14}{:>14}{:>8}{:>8}\n",
             "arena of the training graph",
             "offset",
             "bytes",
             "from op",
             "to op");
  for (const plan::Placement& placement : prepared.plan.programs.training.placements) {
    const std::string name =
        placement.tensor != kNoTensor
            ? prepared.graphs->training[placement.tensor].name
            : "workspace of " +
                  prepared.graphs->training.ops[static_cast<size_t>(placement.first_op)].name;
    fmt::print("  {:<42}{:>14}{:>14}{:>8}{:>8}\n",
               name,
               placement.offset,
               placement.bytes,
               placement.first_op,
               placement.last_op);
  }
}

run::MemoryLimits limits_for(const PlanCommandOptions& options,
                             const PlanPlace& place,
                             const run::PreparedRun& prepared) {
  run::MemoryLimits limits{host_memory(options), prepared.plan.memory.device_bytes(), "a GPU"};
  if (options.host_memory_gib > 0) limits.host = "a host";
  const Hardware& hardware = place.hardware.hardware;
  if (place.hardware.device_bytes > 0) {
    limits.device_bytes = place.hardware.device_bytes;
    limits.device = "a GPU of kind " + hardware_name(options);
  } else if (is_elsewhere(options) && hardware.memory_gib > 0) {
    limits.host_bytes = static_cast<size_t>(hardware.memory_gib * 0x1p30);
    limits.host = "a node of kind " + hardware_name(options);
  } else if (prepared.ops->separate_memory && !gpu_here(limits)) {
    fmt::print("no GPU here to compare with; name one with --on\n");
  }
  return limits;
}

void require_it_fits(const run::PreparedRun& prepared, int local, const run::MemoryLimits& limits) {
  if (run::lacks_memory_for_sums(prepared, limits)) {
    fmt::print("{} has too little memory to add {} lanes at once: two are added\n",
               limits.device,
               prepared.plan.sharding.lanes_at_once);
    return require_it_fits(run::with_pairs(prepared), local, limits);
  }
  if (!run::lacks_memory_for_snapshot(prepared, local, limits))
    return run::require_memory(prepared, local, limits);
  fmt::print(
      "{} has too little memory for a copy of weights and moments: training would wait while "
      "checkpoints are written, as with checkpoint.async: false\n",
      limits.host);
  run::require_memory(run::without_snapshot(prepared), local, limits);
}

}  // namespace lockstep::launcher
