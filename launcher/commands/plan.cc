// lockstep plan CONFIG --ranks N
#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "launcher/bench/bucket_record.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/forecast/advise.h"
#include "launcher/forecast/compare.h"
#include "launcher/forecast/planned_run.h"
#include "launcher/published/validate.h"
#include "launcher/ranks/devices.h"
#include "launcher/ranks/domain_ranks.h"
#include "launcher/ranks/first_rank.h"
#include "launcher/ranks/host_memory.h"
#include "launcher/ranks/session.h"
#include "runtime/base/duration.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/base/threads.h"
#include "runtime/config/parse.h"
#include "runtime/run/fit.h"
#include "runtime/run/lanes.h"
#include "runtime/run/prepared_run.h"
#include "runtime/run/threads.h"

namespace lockstep::launcher {
namespace {

struct PlanCommandOptions {
  CommonOptions common;
  int ranks = 0;
  int ranks_per_node = 0;
  bool activations = false;
  std::string on;            // --on: the hardware to plan for
  std::string gpu;           // --gpu: the same
  std::string network;       // --network: a link or its Gbit/s
  forecast::RunTerms terms;  // --price, --watts, ...
  bool explain = false;
  bool advise = false;
  std::string validate;  // --validate: rows of published figures
  std::string sweep;     // --sweep: numbers of ranks
  std::vector<std::string> compare;
  forecast::Limits limits;         // --budget; deadline_s is not set
  std::string walltime, deadline;  // durations
  forecast::Purchase purchase;
  double host_memory_gib = 0;  // --host-memory; 0: this host's or, with --on, not compared
};

std::string in_units(double bytes) {
  constexpr double kMiB = 1024.0 * 1024;
  return bytes < 1024 * kMiB ? fmt::format("{:.1f} MiB", bytes / kMiB)
                             : fmt::format("{:.2f} GiB", bytes / kMiB / 1024);
}

// The offset and lifetime of each tensor of the training graph in the arena.
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

Json to_json(const run::PreparedRun& prepared,
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

// The hardware that the options name; empty: none.
const std::string& hardware_name(const PlanCommandOptions& options) {
  return options.on.empty() ? options.gpu : options.on;
}

PlanRequest request_of(const PlanCommandOptions& options, int world) {
  return {.common = options.common,
          .on = hardware_name(options),
          .on_flag = options.on.empty() ? "--gpu" : "--on",
          .network = options.network,
          .ranks = options.ranks > 0 ? options.ranks : world,
          .ranks_per_node = options.ranks_per_node,
          .bucket_mib = 0,
          .terms = options.terms};
}

forecast::Limits limits_of(const PlanCommandOptions& options) {
  forecast::Limits limits = options.limits;
  if (!options.deadline.empty())
    limits.deadline_s = require_duration("--deadline", options.deadline);
  return limits;
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

// Prints the plan for a reader: the memory table, then the work, the traffic and the length of the
// run.
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

// Prints, if this host has several NUMA domains, how to start a rank for each, and adds it to
// `json`.
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

// The memory of the run's device, a GPU that --on names or that is here, and of its host, which may
// be a CPU node that --on names.
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

// Throws MemoryError if the run does not fit. As `train` does, it goes without a snapshot first.
void require_it_fits(const run::PreparedRun& prepared, int local, const run::MemoryLimits& limits) {
  if (!run::lacks_memory_for_snapshot(prepared, local, limits))
    return run::require_memory(prepared, local, limits);
  fmt::print(
      "{} has too little memory for a copy of weights and moments: training would wait while "
      "checkpoints are written, as with checkpoint.async: false\n",
      limits.host);
  run::require_memory(run::without_snapshot(prepared), local, limits);
}

// Prints, with comm.tune_buckets and several ranks, for which size of buckets the plan is: the one
// that the run folder has on record, or the config's.
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

void validate_here(const PlanCommandOptions& options) {
  constexpr size_t kMaxBytes = size_t{64} << 20;
  require_result_path("--json", options.common.json);
  const published::Validation validation = published::validate(
      published::read_rows(read_file(options.validate, kMaxBytes), options.validate));
  published::print(validation);
  write_json(options.common.json, published::to_json(validation));
}

void advise_here(const PlanCommandOptions& options,
                 const PlanRequest& request,
                 const PlanPlace& place) {
  if (!place.predicts())
    throw ConfigError("--advise needs --on with the name of hardware or a file");
  Json json;
  print_advice(request, place, find_advice(request, place), json);
  write_json(options.common.json, json);
}

bool is_comparison(const PlanCommandOptions& options) {
  return !options.sweep.empty() || !options.compare.empty() || options.purchase.usd > 0 ||
         options.limits.budget_usd > 0 || !options.deadline.empty();
}

// The same run on several kinds or numbers of devices.
void compare_here(const PlanCommandOptions& options, const PlanRequest& request) {
  Json json;
  const auto runs_on = [&](const std::vector<forecast::Candidate>& candidates) {
    std::vector<forecast::CandidateRun> runs;
    for (const forecast::Candidate& candidate : candidates)
      runs.push_back(forecast::run_on(request, candidate));
    return runs;
  };
  const bool needs_on = !options.sweep.empty() || options.purchase.usd > 0;
  if (needs_on && request.on.empty())
    throw ConfigError("--sweep and --buy need --on with the name of hardware or a file");
  if (!options.sweep.empty()) {
    std::vector<forecast::Candidate> candidates;
    for (const int ranks : forecast::sweep_of(options.sweep))
      candidates.push_back({request.on, ranks});
    forecast::print_sweep(runs_on(candidates), json);
  }
  if (!options.compare.empty()) {
    std::vector<forecast::Candidate> candidates;
    for (const std::string& text : options.compare)
      candidates.push_back(forecast::candidate_of(text));
    forecast::print_comparison(runs_on(candidates), json);
  }
  if (options.limits.budget_usd > 0 || !options.deadline.empty())
    forecast::print_within(runs_on(forecast::rentable()), limits_of(options), json);
  if (options.purchase.usd > 0)
    forecast::print_purchase(
        forecast::run_on(request, {request.on, request.ranks}), options.purchase, json);
  write_json(options.common.json, json);
}

// Plans, on this rank alone, for --ranks ranks or, by default, for `world`.
void plan_here(const PlanCommandOptions& options, int world) {
  if (options.common.config.empty())
    throw ConfigError("CONFIG is required, the path of a config file, except with --validate");
  require_result_path("--json", options.common.json);
  if (!options.on.empty() && !options.gpu.empty())
    throw ConfigError("--on and --gpu both name hardware; allowed: one of them");
  PlanRequest request = request_of(options, world);
  if (!options.walltime.empty())
    request.terms.walltime_s = require_duration("--walltime", options.walltime);
  PlanPlace place;
  find_place(request, place);  // rejects unknown hardware before data is opened
  if (options.advise) return advise_here(options, request, place);
  if (is_comparison(options)) return compare_here(options, request);
  const run::OpenedConfig opened = read_config(options.common);
  const RunConfig& config = opened.config;
  const bool tunes = config.comm.tune_buckets && request.ranks > 1;
  const auto record = tunes ? read_bucket_record(config.output.run_dir) : std::nullopt;
  if (record) request.bucket_mib = record->bucket_mib;
  // A configured number may be meant for another machine: it is not checked against this one.
  const auto threads = static_cast<int>(config.execution.threads);
  const int local = place.ranks_per_node;
  set_compute_threads(
      threads > 0 ? threads : run::choose_threads(config, share_of(find_cpu_limits(), local)));
  const PlannedRun planned = plan_opened(opened, request, place);
  const run::PreparedRun& prepared = planned.prepared;
  for (const std::string& warning : run::warnings_of(prepared)) log_warn("{}", warning);
  const run::LaneUse lanes = run::lane_use(prepared.config, prepared.plan.sharding.shares());
  const double step_flops = static_cast<double>(prepared.plan.programs.training.flops) * lanes.most;
  Json json = to_json(prepared, lanes, local, step_flops);
  if (planned.forecast) {
    forecast::print_forecast(prepared, *planned.forecast);
    if (options.explain) forecast::explain_forecast(prepared, *planned.forecast);
    forecast::add_forecast(prepared, *planned.forecast, json);
    fmt::print("\n");
  }
  print_plan(options, prepared, planned.choices, lanes, local, step_flops);
  if (tunes) print_tuned_buckets(prepared.recorded, record.has_value());
  propose_domain_ranks(options, prepared, json);
  if (options.activations) print_placements(prepared);
  write_json(options.common.json, json);
  require_it_fits(prepared, local, limits_for(options, place, prepared));
}

ExitCode plan(Session& session, const PlanCommandOptions& options) {
  return on_first_rank(session, options.common.log_level, [&] {
    options.validate.empty() ? plan_here(options, session.communicator().size())
                             : validate_here(options);
  });
}

}  // namespace

CommandSpec plan_command() {
  auto options = std::make_shared<PlanCommandOptions>();
  CommandSpec command{
      .name = "plan",
      .help = "Print the exact memory of a run, its work and its traffic, without running it",
      .also = "memory estimate dry_run"};
  add_common_options(command, options->common);
  for (OptionSpec& option : command.options)
    if (option.name == "CONFIG") option.rules.required = false;  // not for --validate
  command.add("--ranks",
              &options->ranks,
              "Ranks to plan for; by default those of this command",
              {.allowed = AtLeast{1},
               .also = "n np nproc nproc_per_node world_size gpus num_gpus num_processes"});
  command.add("--ranks-per-node",
              &options->ranks_per_node,
              "Ranks that share a host; by default all or, with --on, the GPUs of a usual node",
              {.allowed = AtLeast{1}});
  command.add("--on",
              &options->on,
              "Plan for this hardware, which need not be here, and predict time: H200, A100-80GB, "
              "XEON-AMX, ..., a hardware file, or the GiB of a GPU, for memory alone",
              {.also = "hardware gpu_type gpu_kind"});
  command.add("--gpu", &options->gpu, "The same as --on");
  command.add(
      "--network",
      &options->network,
      "What connects the nodes: the name of a link, or its Gbit/s; by default the usual one "
      "of the hardware");
  command.add("--price",
              &options->terms.usd_per_hour,
              "Dollars an hour that a node costs; by default a usual offer on demand",
              {.allowed = Between{0, 1e6}, .also = "cost"});
  command.add("--watts",
              &options->terms.watts,
              "Watts that a node draws; by default those of the hardware file",
              {.allowed = Between{0, 1e6}, .also = "power"});
  command.add("--walltime",
              &options->walltime,
              "Time after which the queue ends a job: 90m, 2.5h, 12:00:00",
              {.also = "time time_limit max_time"});
  command.add("--interruptions",
              &options->terms.interruptions_h,
              "How often an hour a node is lost, as spot instances are: 0.05 for every 20 hours",
              {.allowed = Between{0, 1e6}, .also = "spot"});
  command.add("--validate",
              &options->validate,
              "Instead predict published training figures, a file of rows as "
              "launcher/published/rows.tsv, and compare; CONFIG is not needed");
  command.add(
      "--advise",
      &options->advise,
      "Search lanes, ZeRO stage, recomputation, precision, ranks of a node and more for the "
      "settings that take least time, cost and memory, with --on",
      {.also = "auto autotune tune"});
  command.add(
      "--sweep",
      &options->sweep,
      "Predict time, efficiency and cost for numbers of ranks, with --on: ranks=1..1024, or "
      "ranks=1,2,6",
      {.also = "scaling"});
  command.add("--compare",
              &options->compare,
              "Predict time, cost and energy on several kinds and numbers of devices: "
              "Xeon-8480,L40S,8xH100",
              {.with_commas = true});
  command.add("--budget",
              &options->limits.budget_usd,
              "Find hardware on which the run costs at most so many dollars",
              {.allowed = Between{0, 1e12}});
  command.add("--deadline",
              &options->deadline,
              "Find hardware on which the run takes at most this time: 90m, 24h, 3d");
  command.add("--buy",
              &options->purchase.usd,
              "Price of a node in dollars: after how many months it has cost less than its rent, "
              "with --on",
              {.allowed = Between{0, 1e9}});
  command.add("--hours-a-day",
              &options->purchase.hours_a_day,
              "With --buy: how long the node is used",
              {.show_default = true, .allowed = Between{0.01, 24}});
  command.add("--usd-per-kwh",
              &options->purchase.usd_per_kwh,
              "With --buy: price of its power",
              {.show_default = true, .allowed = Between{0, 100}});
  command.add("--explain", &options->explain, "Also print what the prediction is made of");
  command.add(
      "--host-memory",
      &options->host_memory_gib,
      "GiB that each host has; by default those free on this one or, with --gpu, not compared",
      {.allowed = Between{0, 1e9}, .also = "memory ram"});
  command.add("--activations", &options->activations, "Also print the offset of each activation");
  command.footer =
      "Data files may be missing if the config describes the data: the plan then reports what it "
      "assumed.\n"
      "Ends with exit code 5 if the run would not fit in a host's memory, or the GPU's.";
  command.run = [options](Session& session) { return plan(session, *options); };
  return command;
}

}  // namespace lockstep::launcher
