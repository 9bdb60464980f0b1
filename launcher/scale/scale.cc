// lockstep scale CONFIG --ranks 1,2,4
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <sstream>

#include "collectives/agreement.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/results.h"
#include "launcher/common_options.h"
#include "launcher/ranks/devices.h"
#include "launcher/ranks/session.h"
#include "launcher/scale/cautions.h"
#include "launcher/scale/facts.h"
#include "launcher/scale/plots.h"
#include "launcher/scale/process.h"
#include "runtime/base/cpus.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/streams.h"
#include "runtime/config/parse.h"
#include "runtime/run/precision.h"
#include "runtime/run/prepared_run.h"
#include "runtime/train/folder/run_folder.h"

namespace lockstep {
namespace {

using scale::Mode;
using scale::World;

struct ScaleCommandOptions {
  CommonOptions common;
  std::string ranks;
  std::string mode = "both";
  int repeats = 3;
  int64_t steps = 60;
  std::string out;
  std::string hostfile;
  std::string mpirun;
  double limit_s = 3600;
};

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
    int number = 0;
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, number);
    if (error != std::errc() || stop != end || number < 1 || number > kMaxRanks)
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
std::vector<World> worlds_of(const ScaleCommandOptions& options,
                             const std::vector<int>& all_ranks,
                             const RunConfig& config,
                             Mode mode) {
  const int smallest = all_ranks[0];
  std::vector<World> worlds;
  for (const int ranks : all_ranks) {
    if (mode == Mode::kWeak && ranks % smallest != 0)
      throw ConfigError("--ranks: value is {}; allowed in weak scaling: multiples of {}, the first",
                        ranks,
                        smallest);
    const int64_t growth = mode == Mode::kWeak ? ranks / smallest : 1;
    const World world{mode, ranks, config.train.global_batch * growth, config.train.lanes * growth};
    std::vector<std::string> overrides = options.common.set;
    overrides.push_back(fmt::format("train.global_batch={}", world.global_batch));
    overrides.push_back(fmt::format("train.lanes={}", world.lanes));
    try {
      CommonOptions of_world = options.common;
      of_world.set = overrides;
      validate_for_ranks(read_config(of_world).config, ranks);
    } catch (const ConfigError& error) {
      throw ConfigError("--ranks: {} in {} scaling: {}", ranks, scale::name_of(mode), error.what());
    }
    worlds.push_back(world);
  }
  return worlds;
}

// The flags of `lockstep train` that all runs share.
std::vector<std::string> training_arguments(const CommonOptions& options,
                                            const std::string& device) {
  std::vector<std::string> words{options.config, "--device", device};
  for (const std::string& text : options.set) words.insert(words.end(), {"--set", text});
  if (!options.data.empty()) words.insert(words.end(), {"--data", options.data});
  if (options.share_gpu) words.push_back("--share-gpu");
  return words;
}

// What is known about the runs before the first one.
struct Beforehand {
  std::vector<scale::Fact> facts;
  std::string device;        // "cpu", "cuda"
  int64_t config_steps = 0;  // of the config's whole training
};

// Opens the data, so that errors in it are reported before the first run.
Beforehand look_ahead(const ScaleCommandOptions& options,
                      const OpenedConfig& opened,
                      int smallest) {
  const OpSet& ops = ops_to_plan_for(options.common);
  const ChosenPrecision precision = choose_precision(opened, RunPurpose::kTrain, ops);
  const PreparedRun prepared =
      prepare_run(precision.opened, Topology::flat(smallest), RunPurpose::kTrain, ops);
  for (const std::string& warning : warnings_of(prepared)) log_warn("{}", warning);
  return {scale::facts_of_config(options.common, precision.opened.config, prepared),
          prepared.ops->separate_memory ? "cuda" : "cpu",
          prepared.config.train.steps};
}

void print_progress(const scale::MeasuredRun& run, int repeats) {
  const World& world = run.world;
  const double step_ms = run.ranks[0].step_ms;
  fmt::print("{:<6} {:>4} rank{}  run {}/{}  {} ms a step, {} samples/s{}\n",
             scale::name_of(world.mode),
             world.ranks,
             world.ranks == 1 ? " " : "s",
             run.repeat,
             repeats,
             scale::in_ms(step_ms),
             scale::as_rate(static_cast<double>(world.global_batch) / step_ms * 1000),
             run.oversubscribed ? " (more threads than CPUs)" : "");
  std::fflush(stdout);
}

// Runs each world once, then each a second time, and so on, so that other work on the machine does
// not slow one size alone. Passes each run to `take`.
void measure(const ScaleCommandOptions& options,
             const scale::RunSetup& setup,
             const std::vector<World>& worlds,
             const std::function<void(scale::MeasuredRun)>& take) {
  for (int repeat = 1; repeat <= options.repeats; ++repeat)
    for (const World& world : worlds) {
      scale::MeasuredRun run = scale::run_world(setup, world, repeat);
      print_progress(run, options.repeats);
      take(std::move(run));
    }
}

scale::RunSetup make_setup(const ScaleCommandOptions& options,
                           const RunConfig& config,
                           int max_ranks,
                           const std::string& device,
                           const std::filesystem::path& folder) {
  scale::RunSetup setup;
  setup.folder = folder;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw IoError("create folder", folder, error.value());
  setup.here = scale::processors_here();
  setup.launcher = scale::find_launcher(options.mpirun, options.hostfile, setup.here, folder);
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
  setup.steps = options.steps;
  setup.limit_s = options.limit_s;
  return setup;
}

void write_report(const scale::Report& report, const std::filesystem::path& folder) {
  const std::string text = to_markdown(report);
  write_file_atomically(folder / "scaling.json", to_json(report).dump({.indent = 2}) + "\n");
  write_file_atomically(folder / "scaling.csv", to_csv(report));
  write_file_atomically(folder / "scaling.md", text);
  const std::string without_plots = scale::draw(scale::make_plots(report), folder);
  fmt::print("\n{}\n", text);
  if (!without_plots.empty()) fmt::print("{}\n", without_plots);
  fmt::print("report {}\n", (folder / "scaling.md").string());
  std::fflush(stdout);
}

// An earlier report must not be taken for one of this measurement.
void remove_report(const std::filesystem::path& folder) {
  std::error_code none;
  for (const char* name : {"scaling.json", "scaling.csv", "scaling.md"})
    std::filesystem::remove(folder / name, none);
  for (const std::string name : {"throughput", "efficiency", "lost_time"}) {
    for (const char* suffix : {".gp", ".svg", ".png"})
      std::filesystem::remove(folder / (name + suffix), none);
  }
}

// The results of each mode's runs.
std::vector<scale::ModeReport> reports_of(const std::vector<Mode>& modes,
                                          const std::vector<scale::MeasuredRun>& all_runs,
                                          bool tree) {
  std::vector<scale::ModeReport> reports;
  for (const Mode mode : modes) {
    std::vector<scale::MeasuredRun> runs;
    for (const scale::MeasuredRun& run : all_runs)
      if (run.world.mode == mode) runs.push_back(run);
    // Runs begin with the smallest world: if there is one, others can be compared with it.
    if (!runs.empty())
      reports.push_back({mode, scale::make_rows(runs), scale::compare_hashes(runs, tree)});
  }
  return reports;
}

// Both texts, with a space between them if there are both.
std::string joined(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + " " + b;
}

// Runs all worlds and adds their runs, and what is missing of them, to `report`. Returns the error
// or signal that ended the measurement early, if there is something to report all the same; else
// throws it. An earlier report is removed as soon as there is a new one to write.
std::exception_ptr run_all(scale::Report& report,
                           const ScaleCommandOptions& options,
                           const scale::RunSetup& setup,
                           const std::vector<World>& worlds,
                           const std::filesystem::path& folder) {
  try {
    measure(options, setup, worlds, [&](scale::MeasuredRun run) {
      if (report.runs.empty()) remove_report(folder);
      report.runs.push_back(std::move(run));
    });
  } catch (const Error& error) {
    if (report.runs.empty()) throw;
    report.incomplete = scale::what_is_missing(report.runs, worlds, options.repeats, error.what());
    return std::current_exception();
  }
  return nullptr;
}

// Writes what was measured before `ended_by`, and throws that error.
[[noreturn]] void end_incomplete(const scale::Report& report,
                                 const std::filesystem::path& folder,
                                 const std::exception_ptr& ended_by) {
  try {
    write_report(report, folder);
  } catch (const Error& error) {
    print_log(fmt::format("lockstep: error: {}\n", error.what()));
  }
  std::rethrow_exception(ended_by);
}

ExitCode scale_alone(const ScaleCommandOptions& options) {
  if (!options.out.empty()) require_result_folder("--out", options.out);
  const std::vector<int> ranks = ranks_of(options.ranks);
  const OpenedConfig opened = read_config(options.common);
  const RunConfig& config = opened.config;
  const std::vector<Mode> modes = modes_of(options.mode);
  std::vector<World> worlds;
  for (const Mode mode : modes) {
    const std::vector<World> of_mode = worlds_of(options, ranks, config, mode);
    worlds.insert(worlds.end(), of_mode.begin(), of_mode.end());
  }
  const Beforehand before = look_ahead(options, opened, ranks[0]);
  scale::Report report;
  report.name = config.name;
  report.facts = before.facts;
  const std::filesystem::path folder =
      options.out.empty() ? "runs/" + config.name + "-scaling" : options.out;
  const RunFolder held(folder);  // another measurement would write the same files
  const scale::RunSetup setup =
      make_setup(options, config, ranks.back(), before.device, folder / "runs");
  double load_before = 0;
  getloadavg(&load_before, 1);
  const std::exception_ptr ended_by = run_all(report, options, setup, worlds, folder);
  report.caution = joined(scale::caution_of_load(setup, report.runs, load_before),
                          scale::caution_of_length(report.runs, before.config_steps));
  for (scale::Fact& fact : scale::facts_of_runs(setup, options.repeats, report.runs))
    report.facts.push_back(std::move(fact));
  report.modes = reports_of(modes, report.runs, config.comm.order == CommConfig::Order::kTree);
  if (ended_by != nullptr) end_incomplete(report, folder, ended_by);
  write_report(report, folder);
  const std::string difference = weights_that_differ(report);
  if (!difference.empty())
    throw NumericError("{}; in TREE order the weights must be equal", difference);
  return ExitCode::kOk;
}

ExitCode run_scale(Session& session, const ScaleCommandOptions& options) {
  // Also for the only rank of a launcher, whose variables would confuse the ranks that scale
  // starts.
  const int ranks = session.communicator().size();
  if (ranks > 1 || !session.library().empty())
    throw AgreedError(ExitCode::kUsage,
                      fmt::format("scale: started as {} rank{} of a run; allowed: alone, without "
                                  "mpirun, srun or WORLD_SIZE, since it starts the ranks itself",
                                  ranks,
                                  ranks == 1 ? "" : "s"));
  init_log("info", 0, 1);
  try {
    return scale_alone(options);
  } catch (const scale::Interrupted& interrupted) {
    flush_streams();
    std::raise(interrupted.signal());  // this process ends by the same signal
    throw;
  }
}

void add_options(CommandSpec& command, ScaleCommandOptions& options) {
  add_config_argument(command, options.common);
  command.add("--ranks",
              &options.ranks,
              "World sizes, increasing, with commas: 1,2,4,8",
              {.required = true, .also = {"n", "np", "nproc", "world_sizes", "gpus", "num_gpus"}});
  command.add("--mode",
              &options.mode,
              "strong: the config's batch on all sizes; weak: the config's batch and lanes on the "
              "smallest size, growing with the ranks; or both",
              {.show_default = true, .allowed = OneOf{{"strong", "weak", "both"}}});
  command.add("--repeats",
              &options.repeats,
              "Runs of each world size; medians are reported",
              {.show_default = true, .allowed = AtLeast{1}});
  command.add("--steps",
              &options.steps,
              "Steps of a run; the first quarter, at most 10 steps, does not count",
              {.show_default = true, .allowed = AtLeast{4}});
  command.add("--out",
              &options.out,
              "Folder of the report; by default runs/NAME-scaling, NAME the config's");
  command.add("--hostfile",
              &options.hostfile,
              "Open MPI's file of hosts, lines HOST slots=N; by default this host");
  command.add("--mpirun",
              &options.mpirun,
              "What starts the ranks, with flags of its own: \"mpirun --mca btl tcp,self\"; by "
              "default srun within an allocation of Slurm, otherwise mpirun");
  command.add("--limit",
              &options.limit_s,
              "Seconds after which a run is stopped as failed",
              {.show_default = true, .allowed = Between{1, 1e9}});
  add_config_options(command, options.common);
  add_device_options(command, options.common);
}

}  // namespace

CommandSpec scale_command() {
  auto options = std::make_shared<ScaleCommandOptions>();
  CommandSpec command{
      .name = "scale",
      .help = "Measure how training scales with the number of ranks, and where the time goes"};
  add_options(command, *options);
  command.footer =
      "Started alone, it runs `lockstep train` on each world size in turn, without checkpoints\n"
      "and with almost no evaluation. The threads a rank are the same on every size: by default a\n"
      "host's CPUs divided by the max number of its ranks, or execution.threads. Open MPI gives\n"
      "each rank cores of its own if there are enough, unless --mpirun has --bind-to, --map-by or\n"
      "--oversubscribe. If it runs as root, Open MPI is told to allow that.\n"
      "Writes scaling.md, scaling.csv, scaling.json and, with gnuplot, pictures of throughput,\n"
      "efficiency and lost time; logs and results of the runs are in runs/ beside them.\n"
      "Exit code 7: in TREE order the weights were not the same on all world sizes. If a run\n"
      "fails, the command ends with the run's exit code; on Ctrl-C it ends by that signal. The\n"
      "report then has the runs before, and is marked as incomplete.";
  command.run = [options](Session& session) { return run_scale(session, *options); };
  return command;
}

}  // namespace lockstep
