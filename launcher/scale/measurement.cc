#include "launcher/scale/measurement.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <sstream>

#include "launcher/command_line/results.h"
#include "launcher/ranks/devices.h"
#include "launcher/scale/facts.h"
#include "launcher/scale/plots.h"
#include "runtime/base/cpus.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/streams.h"
#include "runtime/base/text.h"
#include "runtime/config/parse.h"
#include "runtime/run/lanes.h"
#include "runtime/run/precision.h"
#include "runtime/run/prepared_run.h"
#include "runtime/train/folder/run_folder.h"

namespace lockstep::scale {
namespace {

std::vector<Mode> modes_of(const std::string& text) {
  if (text == "weak") return {Mode::kWeak};
  if (text == "strong") return {Mode::kStrong};
  return {Mode::kStrong, Mode::kWeak};
}

// The numbers of --ranks.
std::vector<int> ranks_of(const std::string& text) {
  constexpr int kMaxRanks = 4096;  // as train.lanes
  std::vector<int> ranks;
  std::istringstream words(text + ",");
  for (std::string word; std::getline(words, word, ',');) {
    const int number = parse_as<int>(word).value_or(0);
    if (number < 1 || number > kMaxRanks)
      throw ConfigError(
          "--ranks: value is '{}'; allowed: whole numbers from 1 to {} that increase, with commas "
          "between them, such as 1,2,4",
          text,
          kMaxRanks);
    if (!ranks.empty() && number <= ranks.back())
      throw ConfigError("--ranks: {} follows {}; allowed: numbers that increase, such as 1,2,4",
                        number,
                        ranks.back());
    ranks.push_back(number);
  }
  return ranks;
}

// The worlds of one mode, each with a batch and lanes that the config's limits allow.
std::vector<World> worlds_of(const ScaleOptions& options,
                             const std::vector<int>& all_ranks,
                             const RunConfig& config,
                             Mode mode) {
  const int smallest = all_ranks[0];
  std::vector<World> worlds;
  for (const int ranks : all_ranks) {
    const TrainConfig& train = config.train;
    // The batch grows by whole lanes.
    const bool weak = mode == Mode::kWeak;
    if (weak && train.lanes * ranks % smallest != 0)
      throw ConfigError(
          "--ranks: value is {}; allowed in weak scaling: numbers that share {} lanes as {} do",
          ranks,
          train.lanes,
          smallest);
    const int64_t lanes = weak ? train.lanes * ranks / smallest : train.lanes;
    const World world{mode, ranks, train.global_batch / train.lanes * lanes, lanes};
    std::vector<std::string> overrides = options.common.set;
    overrides.push_back(fmt::format("train.global_batch={}", world.global_batch));
    overrides.push_back(fmt::format("train.lanes={}", world.lanes));
    try {
      launcher::CommonOptions of_world = options.common;
      of_world.set = overrides;
      config::validate_for_ranks(launcher::read_config(of_world).config, ranks);
    } catch (const ConfigError& error) {
      throw ConfigError("--ranks: {} in {} scaling: {}", ranks, name_of(mode), error.what());
    }
    worlds.push_back(world);
  }
  return worlds;
}

// The flags of `lockstep train` that all runs share.
std::vector<std::string> training_arguments(const launcher::CommonOptions& options,
                                            const std::string& device) {
  std::vector<std::string> words{options.config, "--device", device};
  for (const std::string& text : options.set) words.insert(words.end(), {"--set", text});
  if (!options.data.empty()) words.insert(words.end(), {"--data", options.data});
  if (options.share_gpu) words.push_back("--share-gpu");
  return words;
}

// What is known about the runs before the first one.
struct Beforehand {
  std::vector<Fact> facts;
  std::string device;        // "cpu", "cuda"
  int64_t config_steps = 0;  // of the config's whole training
};

// Opens the data, so that errors in it are reported before the first run.
Beforehand look_ahead(const ScaleOptions& options, const run::OpenedConfig& opened, int smallest) {
  const exec::OpSet& ops = launcher::ops_to_plan_for(options.common);
  const run::ChosenPrecision precision =
      run::choose_precision(opened, run::RunPurpose::kTrain, ops);
  const run::PreparedRun prepared = run::prepare_run(
      precision.opened, collectives::Topology::flat(smallest), run::RunPurpose::kTrain, ops);
  for (const std::string& warning : run::warnings_of(prepared)) log_warn("{}", warning);
  return {facts_of_config(options.common, precision.opened.config, prepared),
          prepared.ops->separate_memory ? "cuda" : "cpu",
          prepared.config.train.steps};
}

void print_progress(const MeasuredRun& run, int repeats) {
  const World& world = run.world;
  const double step_ms = run.ranks[0].step_ms;
  fmt::print("{:<6} {:>4} rank{}  run {}/{}  {} ms a step, {} samples/s{}\n",
             name_of(world.mode),
             world.ranks,
             world.ranks == 1 ? " " : "s",
             run.repeat,
             repeats,
             in_ms(step_ms),
             as_rate(static_cast<double>(world.global_batch) / step_ms * 1000),
             run.oversubscribed ? " (more threads than CPUs)" : "");
  std::fflush(stdout);
}

// Runs each world once, then each a second time, and so on, so that other work on the machine does
// not slow one size alone. Passes each run to `take`.
void measure(const ScaleOptions& options,
             const RunSetup& setup,
             const std::vector<World>& worlds,
             const std::function<void(MeasuredRun)>& take) {
  for (int repeat = 1; repeat <= options.repeats; ++repeat)
    for (const World& world : worlds) {
      MeasuredRun run = run_world(setup, world, repeat);
      print_progress(run, options.repeats);
      take(std::move(run));
    }
}

RunSetup make_setup(const ScaleOptions& options,
                    const RunConfig& config,
                    int max_ranks,
                    const std::string& device,
                    const std::filesystem::path& folder) {
  RunSetup setup;
  setup.folder = folder;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw IoError("create folder", folder, error.value());
  setup.here = processors_here();
  setup.launcher = find_launcher(options.mpirun, options.hostfile, setup.here, folder);
  const int slots = setup.launcher.hosts.total_slots;
  if (slots > 0 && max_ranks > slots)
    throw ConfigError("--ranks: value is {}; allowed with the slots of {}: up to {}",
                      max_ranks,
                      options.hostfile,
                      slots);
  // On other hosts ranks are bound to whole cores.
  const bool several = !options.hostfile.empty() || setup.launcher.hosts.count > 1;
  const int processors = several ? setup.here.cores : setup.here.cpus;
  const int ranks_here = ranks_per_host(setup.launcher, max_ranks);
  setup.threads = config.execution.threads > 0
                      ? static_cast<int>(config.execution.threads)
                      : std::min(std::max(1, processors / ranks_here),
                                 share_of(find_cpu_limits(), ranks_here).cpus);
  setup.arguments = training_arguments(options.common, device);
  if (!options.on.empty()) setup.arguments.insert(setup.arguments.end(), {"--on", options.on});
  setup.steps = options.steps;
  setup.limit_s = options.limit_s;
  return setup;
}

void write_report(const Report& report, const std::filesystem::path& folder) {
  const std::string text = to_markdown(report);
  write_file_atomically(folder / "scaling.json", to_json(report).dump({.indent = 2}) + "\n");
  write_file_atomically(folder / "scaling.csv", to_csv(report));
  write_file_atomically(folder / "scaling.md", text);
  draw(make_pictures(report), folder);
  fmt::print("\n{}\n", text);
  fmt::print("report {}\n", (folder / "scaling.md").string());
  std::fflush(stdout);
}

// An earlier report must not be taken for one of this measurement.
void remove_report(const std::filesystem::path& folder) {
  std::error_code none;
  for (const char* name : {"scaling.json", "scaling.csv", "scaling.md", "report.html"})
    std::filesystem::remove(folder / name, none);
  for (const std::string name : kPictures)
    for (const char* suffix : {".svg", ".csv"})
      std::filesystem::remove(folder / (name + suffix), none);
}

// The results of each mode's runs.
std::vector<ModeReport> reports_of(const std::vector<Mode>& modes,
                                   const std::vector<MeasuredRun>& all_runs,
                                   bool tree) {
  std::vector<ModeReport> reports;
  for (const Mode mode : modes) {
    std::vector<MeasuredRun> runs;
    for (const MeasuredRun& run : all_runs)
      if (run.world.mode == mode) runs.push_back(run);
    // Runs begin with the smallest world: if there is one, others can be compared with it.
    if (!runs.empty()) reports.push_back({mode, make_rows(runs), compare_hashes(runs, tree)});
  }
  return reports;
}

// Runs all worlds and adds their runs, and what is missing of them, to `report`. Returns the error
// or signal that ended the measurement early, if there is something to report all the same; else
// throws it. An earlier report is removed as soon as there is a new one to write.
std::exception_ptr run_all(Report& report,
                           const ScaleOptions& options,
                           const RunSetup& setup,
                           const std::vector<World>& worlds,
                           const std::filesystem::path& folder) {
  try {
    measure(options, setup, worlds, [&](MeasuredRun run) {
      if (report.runs.empty()) remove_report(folder);
      report.runs.push_back(std::move(run));
    });
  } catch (const Error& error) {
    if (report.runs.empty()) throw;
    report.incomplete = what_is_missing(report.runs, worlds, options.repeats, error.what());
    return std::current_exception();
  }
  return nullptr;
}

// Writes what was measured before `ended_by`, and throws that error.
[[noreturn]] void end_incomplete(const Report& report,
                                 const std::filesystem::path& folder,
                                 const std::exception_ptr& ended_by) {
  try {
    write_report(report, folder);
  } catch (const Error& error) {
    print_log(fmt::format("lockstep: error: {}\n", error.what()));
  }
  std::rethrow_exception(ended_by);
}

}  // namespace

void measure_scaling(const ScaleOptions& options) {
  if (!options.out.empty()) launcher::require_result_folder("--out", options.out);
  const std::vector<int> ranks = ranks_of(options.ranks);
  const run::OpenedConfig opened = run::choose_lanes(launcher::read_config(options.common)).opened;
  const RunConfig& config = opened.config;
  const std::vector<Mode> modes = modes_of(options.mode);
  std::vector<World> worlds;
  for (const Mode mode : modes) {
    const std::vector<World> of_mode = worlds_of(options, ranks, config, mode);
    worlds.insert(worlds.end(), of_mode.begin(), of_mode.end());
  }
  const Beforehand before = look_ahead(options, opened, ranks[0]);
  Report report;
  report.name = config.name;
  report.facts = before.facts;
  const std::filesystem::path folder =
      options.out.empty() ? "runs/" + config.name + "-scaling" : options.out;
  const train::RunFolder held(folder);  // another measurement would write the same files
  const RunSetup setup = make_setup(options, config, ranks.back(), before.device, folder / "runs");
  double load_before = 0;
  getloadavg(&load_before, 1);
  const std::exception_ptr ended_by = run_all(report, options, setup, worlds, folder);
  report.caution = caution_of_load(setup, report.runs, load_before);
  const std::string length = caution_of_length(report.runs, before.config_steps);
  if (!length.empty()) append_item(report.caution, length, " ");
  for (Fact& fact : facts_of_runs(setup, options.repeats, report.runs))
    report.facts.push_back(std::move(fact));
  report.modes = reports_of(modes, report.runs, config.comm.order == CommConfig::Order::kTree);
  if (ended_by != nullptr) end_incomplete(report, folder, ended_by);
  write_report(report, folder);
  const std::string difference = weights_that_differ(report);
  if (!difference.empty())
    throw NumericError("{}; in TREE order the weights must be equal", difference);
}

}  // namespace lockstep::scale
