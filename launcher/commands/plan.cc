// lockstep plan CONFIG --ranks N
#include <fmt/core.h>

#include "launcher/bench/bucket_record.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/plan_options.h"
#include "launcher/commands/plan_report.h"
#include "launcher/forecast/advise.h"
#include "launcher/forecast/recorded_run.h"
#include "launcher/plots/picture.h"
#include "launcher/published/tuned_forecast.h"
#include "launcher/published/validate.h"
#include "launcher/ranks/first_rank.h"
#include "launcher/ranks/session.h"
#include "runtime/base/duration.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/threads.h"
#include "runtime/metrics/environment.h"
#include "runtime/run/threads.h"

namespace lockstep::launcher {
namespace {

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

// Draws the picture of --plot, and writes its figures beside it.
void draw(forecast::Chart chart, const PlanCommandOptions& options) {
  chart.note = fmt::format("{}; Lockstep {}; {}",
                           options.common.config,
                           metrics::lockstep_version(),
                           metrics::utc_now());
  plots::write_picture(forecast::picture_of(chart), options.plot);
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
    const std::vector<forecast::CandidateRun> runs = runs_on(candidates);
    forecast::print_sweep(runs, json);
    if (!options.plot.empty()) draw(forecast::sweep_chart(runs), options);
  }
  if (!options.compare.empty()) {
    std::vector<forecast::Candidate> candidates;
    for (const std::string& text : options.compare)
      candidates.push_back(forecast::candidate_of(text));
    const std::vector<forecast::CandidateRun> runs = runs_on(candidates);
    forecast::print_comparison(runs, json);
    if (!options.plot.empty()) draw(forecast::comparison_chart(runs), options);
  }
  if (options.limits.budget_usd > 0 || !options.deadline.empty())
    forecast::print_within(runs_on(forecast::rentable()), limits_of(options), json);
  if (options.purchase.usd > 0)
    forecast::print_purchase(
        forecast::run_on(request, {request.on, request.ranks}), options.purchase, json);
  write_json(options.common.json, json);
}

// The run of --replay, which by default sets config and ranks; null without --replay.
std::unique_ptr<RecordedRun> recorded_run(const PlanCommandOptions& options, PlanRequest& request) {
  if (options.replay.empty()) {
    if (!options.from.empty()) throw ConfigError("--from is the hardware of a run; add --replay");
    if (request.common.config.empty())
      throw ConfigError(
          "CONFIG is required, the path of a config file, except with --validate or --replay");
    return nullptr;
  }
  if (options.advise || is_comparison(options))
    throw ConfigError(
        "--replay predicts one run; leave out --advise, --sweep, --compare and --buy");
  std::unique_ptr<RecordedRun> run = read_recorded_run(options.replay, options.from);
  if (request.common.config.empty()) request.common.config = run->config;
  if (options.ranks == 0) request.ranks = run->request.ranks;
  return run;
}

// Plans, on this rank alone, for --ranks ranks or, by default, for `world`.
void plan_here(const PlanCommandOptions& options, int world) {
  require_result_path("--json", options.common.json);
  if (!options.plot.empty()) {
    require_result_path("--plot", options.plot, {".svg"});
    if (options.sweep.empty() == options.compare.empty())
      throw ConfigError("--plot draws --sweep or --compare; allowed: with one of them");
  }
  if (!options.on.empty() && !options.gpu.empty())
    throw ConfigError("--on and --gpu both name hardware; allowed: one of them");
  PlanRequest request = request_of(options, world);
  const std::unique_ptr<RecordedRun> recorded = recorded_run(options, request);
  if (!options.walltime.empty())
    request.terms.walltime_s = require_duration("--walltime", options.walltime);
  PlanPlace place;
  find_place(request, place);  // rejects unknown hardware before data is opened
  if (recorded && !place.predicts())
    throw ConfigError("--replay needs --on with the name of hardware or a file");
  if (options.advise) return advise_here(options, request, place);
  if (is_comparison(options)) return compare_here(options, request);
  const run::OpenedConfig opened = read_config(request.common);
  const RunConfig& config = opened.config;
  const bool tunes = config.comm.tune_buckets && request.ranks > 1;
  const auto record = tunes ? read_bucket_record(config.output.run_dir) : std::nullopt;
  if (record) request.bucket_mib = record->bucket_mib;
  // A configured number may be meant for another machine: it is not checked against this one.
  const auto threads = static_cast<int>(config.execution.threads);
  const int local = place.ranks_per_node;
  set_compute_threads(
      threads > 0 ? threads : run::choose_threads(config, share_of(find_cpu_limits(), local)));
  PlannedRun planned = plan_opened(opened, request, place);
  std::optional<forecast::Replay> replay;
  if (recorded) replay = replay_forecast(*recorded, request.terms, planned);
  const run::PreparedRun& prepared = planned.prepared;
  for (const std::string& warning : run::warnings_of(prepared)) log_warn("{}", warning);
  const run::LaneUse lanes = run::lane_use(prepared.config, prepared.plan.sharding.shares());
  const double step_flops = static_cast<double>(prepared.plan.programs.training.flops) * lanes.most;
  Json json = plan_json(prepared, lanes, local, step_flops);
  if (planned.forecast) {
    const published::TunedForecast tuned =
        published::tuned_forecast(prepared, planned.forecast->place);
    forecast::print_forecast(prepared, *planned.forecast);
    if (replay) forecast::print_replay(*replay);
    published::print_tuned(tuned);
    if (options.explain) {
      forecast::explain_forecast(prepared, *planned.forecast);
      if (replay) forecast::explain_replay(*replay);
      published::explain_tuned(tuned);
    }
    forecast::add_forecast(prepared, *planned.forecast, json);
    if (replay) forecast::add_replay(*replay, json);
    published::add_tuned(tuned, json);
    fmt::print("\n");
  }
  print_plan(options, prepared, planned.choices, lanes, local, step_flops);
  if (tunes) print_tuned_buckets(prepared.recorded, record.has_value());
  if (!recorded) propose_domain_ranks(options, prepared, json);
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
      .help = "Print the exact memory of a run, and its time and cost on given hardware",
      .also = "memory estimate dry_run"};
  add_plan_options(command, *options);
  command.footer =
      "Data files may be missing if the config describes the data: the plan then reports what it "
      "assumed.\n"
      "Ends with exit code 5 if the run would not fit in a host's memory, or the GPU's.";
  command.run = [options](Session& session) { return plan(session, *options); };
  return command;
}

}  // namespace lockstep::launcher
