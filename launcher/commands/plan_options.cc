#include "launcher/commands/plan_options.h"

#include "runtime/base/duration.h"

namespace lockstep::launcher {

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

bool is_comparison(const PlanCommandOptions& options) {
  return !options.sweep.empty() || !options.compare.empty() || options.purchase.usd > 0 ||
         options.limits.budget_usd > 0 || !options.deadline.empty();
}

void add_plan_options(CommandSpec& command, PlanCommandOptions& options) {
  add_common_options(command, options.common);
  for (OptionSpec& option : command.options)
    if (option.name == "CONFIG") option.rules.required = false;  // not for --validate and --replay
  command.add("--ranks",
              &options.ranks,
              "Ranks to plan for; by default those of this command",
              {.allowed = AtLeast{1},
               .also = "n np nproc nproc_per_node world_size gpus num_gpus num_processes"});
  command.add("--ranks-per-node",
              &options.ranks_per_node,
              "Ranks that share a host; by default all or, with --on, the GPUs of a usual node",
              {.allowed = AtLeast{1}});
  command.add("--on",
              &options.on,
              "Plan for this hardware, which need not be here, and predict time: H200, A100-80GB, "
              "XEON-AMX, ..., a hardware file, or the GiB of a GPU, for memory alone",
              {.also = "hardware gpu_type gpu_kind"});
  command.add("--gpu", &options.gpu, "The same as --on");
  command.add(
      "--network",
      &options.network,
      "What connects the nodes: the name of a link, or its Gbit/s; by default the usual one "
      "of the hardware");
  command.add("--price",
              &options.terms.usd_per_hour,
              "Dollars an hour that a node costs; by default a usual offer on demand",
              {.allowed = Between{0, 1e6}, .also = "cost"});
  command.add("--watts",
              &options.terms.watts,
              "Watts that a node draws; by default those of the hardware file",
              {.allowed = Between{0, 1e6}, .also = "power"});
  command.add("--walltime",
              &options.walltime,
              "Time after which the queue ends a job: 90m, 2.5h, 12:00:00",
              {.also = "time time_limit max_time"});
  command.add("--interruptions",
              &options.terms.interruptions_h,
              "How often an hour a node is lost, as spot instances are: 0.05 for every 20 hours",
              {.allowed = Between{0, 1e6}, .also = "spot"});
  command.add("--spread",
              &options.terms.spread,
              "How much a rank's steps differ, as the standard deviation divided by the mean: all "
              "wait for the slowest; by default 0.002 to 0.01",
              {.allowed = Between{1e-6, 1}, .also = "stragglers jitter"});
  command.add("--validate",
              &options.validate,
              "Instead predict published training figures, a file of rows as "
              "launcher/published/rows.tsv, and compare; CONFIG is not needed");
  command.add(
      "--replay",
      &options.replay,
      "Predict from the measured timeline of a run, RUN/timeline.json, with --on; CONFIG is "
      "by default that of the run");
  command.add("--from",
              &options.from,
              "With --replay: the hardware on which the run was, a name or a file; by default as "
              "the run's record has it");
  command.add(
      "--advise",
      &options.advise,
      "Search lanes, ZeRO stage, recomputation, precision, ranks of a node and more for the "
      "settings that take least time, cost and memory, with --on",
      {.also = "auto autotune tune"});
  command.add(
      "--sweep",
      &options.sweep,
      "Predict time, efficiency and cost for numbers of ranks, with --on: ranks=1..1024, or "
      "ranks=1,2,6",
      {.also = "scaling"});
  command.add("--compare",
              &options.compare,
              "Predict time, cost and energy on several kinds and numbers of devices: "
              "Xeon-8480,L40S,8xH100",
              {.with_commas = true});
  command.add(
      "--plot",
      &options.plot,
      "With --sweep or --compare: draw it to this file, .svg; its figures are beside it as .csv");
  command.add("--budget",
              &options.limits.budget_usd,
              "Find hardware on which the run costs at most so many dollars",
              {.allowed = Between{0, 1e12}});
  command.add("--deadline",
              &options.deadline,
              "Find hardware on which the run takes at most this time: 90m, 24h, 3d");
  command.add("--buy",
              &options.purchase.usd,
              "Price of a node in dollars: after how many months it has cost less than its rent, "
              "with --on",
              {.allowed = Between{0, 1e9}});
  command.add("--hours-a-day",
              &options.purchase.hours_a_day,
              "With --buy: how long the node is used",
              {.show_default = true, .allowed = Between{0.01, 24}});
  command.add("--usd-per-kwh",
              &options.purchase.usd_per_kwh,
              "With --buy: price of its power",
              {.show_default = true, .allowed = Between{0, 100}});
  command.add("--explain", &options.explain, "Also print what the prediction is made of");
  command.add(
      "--host-memory",
      &options.host_memory_gib,
      "GiB that each host has; by default those free on this one or, with --gpu, not compared",
      {.allowed = Between{0, 1e9}, .also = "memory ram"});
  command.add("--activations", &options.activations, "Also print the offset of each activation");
}

}  // namespace lockstep::launcher
