// lockstep scale CONFIG --ranks 1,2,4
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "collectives/agreement.h"
#include "launcher/assembly.h"
#include "launcher/devices.h"
#include "launcher/scale/plots.h"
#include "launcher/scale/report_text.h"
#include "launcher/scale/runs.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/config/parse.h"
#include "runtime/metrics/environment.h"

namespace lockstep {
namespace {

using scale::Mode;
using scale::World;

struct ScaleCommandOptions {
  CommonOptions common;
  std::vector<int> ranks;
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

void check_ranks(const std::vector<int>& ranks) {
  for (size_t i = 1; i < ranks.size(); ++i)
    if (ranks[i] <= ranks[i - 1])
      throw ConfigError("--ranks: {} follows {}; allowed: numbers that increase, such as 1,2,4",
                        ranks[i],
                        ranks[i - 1]);
}

// The worlds of one mode, each with a batch and lanes that the config's limits allow.
std::vector<World> worlds_of(const ScaleCommandOptions& options,
                             const RunConfig& config,
                             Mode mode) {
  const int smallest = options.ranks[0];
  std::vector<World> worlds;
  for (const int ranks : options.ranks) {
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
      validate_for_ranks(load_config(options.common.config, overrides), ranks);
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

const char* name_of(Precision precision) {
  switch (precision) {
    case Precision::kBf16: return "BF16";
    case Precision::kFp16: return "FP16";
    case Precision::kFp32: break;
  }
  return "FP32";
}

// What a busy machine does to the figures; empty on an idle one. `load_before`: of this host, told
// where the runs do not say what other work took.
std::string caution_for(const scale::RunSetup& setup,
                        const std::vector<scale::MeasuredRun>& runs,
                        double load_before) {
  constexpr double kIdle = 0.1, kIdleLoad = 0.2;  // of the CPUs; a load fades away slowly
  double taken = 0;
  for (const scale::MeasuredRun& run : runs)
    taken += run.other_cpus / static_cast<double>(runs.size());
  const bool measured = setup.launcher.starts_here();
  const int cpus = setup.here.cpus;
  if (measured ? taken <= kIdle * cpus : load_before <= kIdleLoad * cpus) return "";
  const std::string what =
      measured
          ? fmt::format(
                "during the runs other work took {:.1f} of this host's {} CPUs on "
                "average",
                taken,
                cpus)
          : fmt::format(
                "before the runs this host had a load of {:.1f} on {} CPUs", load_before, cpus);
  return "Caution: " + what +
         ". What it takes shows as slower compute, stragglers and exposed communication.";
}

// What the config says of every run, and the kind of device. Opens the data, so that what it lacks
// is told before the first run.
std::vector<scale::Fact> facts_before(const ScaleCommandOptions& options, std::string& device) {
  const RunConfig config = read_config(options.common);
  const Assembly assembly = assemble(config,
                                     Topology::flat(options.ranks[0]),
                                     AssemblyPurpose::kTrain,
                                     ops_to_plan_for(options.common));
  device = assembly.ops->separate_memory ? "cuda" : "cpu";
  MemoryLimits limits;
  limits.device = device;
  if (device == "cuda") gpu_here(limits);  // its name
  const bool tree = config.comm.order == CommConfig::Order::kTree;
  return {{"config", "config", options.common.config},
          {"parameters", "parameters", assembly.plan.layout.parameters},
          {"data", "data", assembly.data.summary.description},
          {"precision", "precision", name_of(config.execution.precision)},
          {"order", "order of sums over ranks", tree ? "TREE" : "FAST"},
          {"device", "device", limits.device}};
}

// What the runs found out about the machine; the last one is of a largest world.
std::vector<scale::Fact> facts_after(const ScaleCommandOptions& options,
                                     const scale::RunSetup& setup,
                                     const std::vector<scale::MeasuredRun>& runs) {
  const nlohmann::ordered_json& environment = runs.back().environment;
  std::vector<std::string> hosts;
  for (const RankTimes& rank : runs.back().ranks)
    if (std::find(hosts.begin(), hosts.end(), rank.host) == hosts.end()) hosts.push_back(rank.host);
  const scale::ExchangeSizes& exchange = runs.back().exchange;
  const double largest_mib = static_cast<double>(exchange.largest_bucket_bytes) / (1 << 20);
  std::vector<scale::Fact> facts{
      {"gradient_buckets",
       "buckets of gradients",
       fmt::format("{} of up to {:.3g} MiB", exchange.buckets, largest_mib)},
      {"threads", "threads a rank", setup.threads},
      {"steps", "steps of a run that count", runs.back().ranks[0].steps},
      {"repeats", "runs of each world size", options.repeats},
      {"launcher", "launcher", setup.launcher.version},
      {"lockstep_version", "Lockstep", lockstep_version()},
      {"hosts", "hosts", hosts},
      {"cpus", "CPUs of this host", setup.here.cpus},
      {"cores", "cores of this host", setup.here.cores},
      {"date", "date", runs.front().environment.value("start_time", "")}};
  for (const auto& [key, title] : {std::pair("cpu_model", "CPU"),
                                   std::pair("git_revision", "revision"),
                                   std::pair("libraries", "messages by")})
    if (environment.contains(key)) facts.push_back({key, title, environment[key]});
  if (!runs.back().transport.empty())
    facts.push_back({"transport", "between ranks", runs.back().transport});
  return facts;
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

// Each world once, then each a second time, and so on: what slows the machine for a while does not
// slow one size alone.
std::vector<scale::MeasuredRun> measure(const ScaleCommandOptions& options,
                                        const scale::RunSetup& setup,
                                        const std::vector<World>& worlds) {
  std::vector<scale::MeasuredRun> runs;
  for (int repeat = 1; repeat <= options.repeats; ++repeat)
    for (const World& world : worlds) {
      runs.push_back(scale::run_world(setup, world, repeat));
      print_progress(runs.back(), options.repeats);
    }
  return runs;
}

scale::RunSetup make_setup(const ScaleCommandOptions& options,
                           const RunConfig& config,
                           const std::string& device,
                           const std::filesystem::path& folder) {
  scale::RunSetup setup;
  setup.folder = folder;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw IoError("create folder", folder, error.value());
  setup.here = scale::processors_here();
  setup.launcher = scale::find_launcher(options.mpirun, options.hostfile, setup.here, folder);
  const int most_ranks = options.ranks.back(), slots = setup.launcher.hosts.total_slots;
  if (slots > 0 && most_ranks > slots)
    throw ConfigError("--ranks: value is {}; allowed with the slots of {}: up to {}",
                      most_ranks,
                      options.hostfile,
                      slots);
  // On other hosts ranks are bound to whole cores.
  const bool several = !options.hostfile.empty() || setup.launcher.hosts.count > 1;
  const int processors = several ? setup.here.cores : setup.here.cpus;
  setup.threads = config.execution.threads > 0
                      ? static_cast<int>(config.execution.threads)
                      : std::max(1, processors / ranks_per_host(setup.launcher, most_ranks));
  setup.arguments = training_arguments(options.common, device);
  setup.steps = options.steps;
  setup.limit_s = options.limit_s;
  return setup;
}

void write_report(const scale::Report& report, const std::filesystem::path& folder) {
  const std::string text = to_markdown(report);
  write_file_atomically(folder / "scaling.json", to_json(report).dump(2) + "\n");
  write_file_atomically(folder / "scaling.csv", to_csv(report));
  write_file_atomically(folder / "scaling.md", text);
  const std::string without_plots = scale::draw(scale::make_plots(report), folder);
  fmt::print("\n{}\n", text);
  if (!without_plots.empty()) fmt::print("{}\n", without_plots);
  fmt::print("report {}\n", (folder / "scaling.md").string());
  std::fflush(stdout);
}

// An earlier report must not pass for one of this measurement, should that fail.
void remove_report(const std::filesystem::path& folder) {
  std::error_code none;
  for (const char* name : {"scaling.json", "scaling.csv", "scaling.md"})
    std::filesystem::remove(folder / name, none);
  for (const std::string name : {"throughput", "efficiency", "lost_time"}) {
    for (const char* suffix : {".gp", ".svg", ".png"})
      std::filesystem::remove(folder / (name + suffix), none);
  }
}

ExitCode scale_alone(const ScaleCommandOptions& options) {
  check_ranks(options.ranks);
  const RunConfig config = read_config(options.common);
  const std::vector<Mode> modes = modes_of(options.mode);
  std::vector<World> worlds;
  for (const Mode mode : modes) {
    const std::vector<World> of_mode = worlds_of(options, config, mode);
    worlds.insert(worlds.end(), of_mode.begin(), of_mode.end());
  }
  scale::Report report;
  report.name = config.name;
  std::string device;
  report.facts = facts_before(options, device);
  const std::filesystem::path folder =
      options.out.empty() ? "runs/" + config.name + "-scaling" : options.out;
  const scale::RunSetup setup = make_setup(options, config, device, folder / "runs");
  double load_before = 0;
  getloadavg(&load_before, 1);
  remove_report(folder);
  report.runs = measure(options, setup, worlds);
  report.caution = caution_for(setup, report.runs, load_before);
  for (scale::Fact& fact : facts_after(options, setup, report.runs))
    report.facts.push_back(std::move(fact));
  const bool tree = config.comm.order == CommConfig::Order::kTree;
  for (const Mode mode : modes) {
    std::vector<scale::MeasuredRun> runs;
    for (const scale::MeasuredRun& run : report.runs)
      if (run.world.mode == mode) runs.push_back(run);
    report.modes.push_back({mode, scale::make_rows(runs), scale::check_hashes(runs, tree)});
  }
  write_report(report, folder);
  const std::string difference = weights_that_differ(report);
  if (!difference.empty())
    throw NumericError("{}; allowed in TREE order: equal weights", difference);
  return ExitCode::kOk;
}

ExitCode scale_command(Session& session, const ScaleCommandOptions& options) {
  // Also as the only rank of a launcher: its variables would confuse those that this starts.
  const int ranks = session.communicator().size();
  if (ranks > 1 || !session.library().empty())
    throw AgreedError(ExitCode::kUsage,
                      fmt::format("scale: started as {} rank{} of a run; allowed: alone, without "
                                  "mpirun, srun or WORLD_SIZE, since it starts the ranks itself",
                                  ranks,
                                  ranks == 1 ? "" : "s"));
  init_log("info", 0, 1);
  return scale_alone(options);
}

void add_options(CLI::App& command, ScaleCommandOptions& options) {
  command.add_option("CONFIG", options.common.config, "Config file in protobuf text format")
      ->required();
  command.add_option("--ranks", options.ranks, "World sizes, increasing, with commas: 1,2,4,8")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(at_least(1))
      ->required();
  command
      .add_option("--mode",
                  options.mode,
                  "strong: the config's batch on all sizes; weak: the config's batch and lanes on "
                  "the smallest size, growing with the ranks; or both")
      ->check(CLI::IsMember({"strong", "weak", "both"}))
      ->capture_default_str();
  command.add_option("--repeats", options.repeats, "Runs of each world size; medians are reported")
      ->check(at_least(1))
      ->capture_default_str();
  command
      .add_option("--steps",
                  options.steps,
                  "Steps of a run; the first quarter, at most 10 steps, does not count")
      ->check(at_least(4))
      ->capture_default_str();
  command.add_option("--out",
                     options.out,
                     "Folder of the report; by default runs/NAME-scaling, NAME the config's");
  command.add_option("--hostfile",
                     options.hostfile,
                     "Open MPI's file of hosts, lines HOST slots=N; by default this host");
  command.add_option("--mpirun",
                     options.mpirun,
                     "What starts the ranks, with flags of its own: \"mpirun --mca btl tcp,self\"; "
                     "by default srun within an allocation of Slurm, else mpirun");
  command.add_option("--limit", options.limit_s, "Seconds after which a run is given up")
      ->check(between(1, 1e9))
      ->capture_default_str();
  add_config_options(command, options.common);
  add_device_options(command, options.common);
}

}  // namespace

void add_scale_command(CLI::App& app, Command& selected) {
  auto options = std::make_shared<ScaleCommandOptions>();
  CLI::App* command = app.add_subcommand(
      "scale", "Measure how training scales with the number of ranks, and where the time goes");
  add_options(*command, *options);
  command->footer(
      "Started alone, it runs `lockstep train` on each world size in turn, without checkpoints\n"
      "and with next to no evaluation, and with as many threads a rank on every size:\n"
      "execution.threads, else the CPUs by the most ranks of a host. Open MPI gives each rank\n"
      "cores of its own where they are enough; a --mpirun that says --bind-to, --map-by or\n"
      "--oversubscribe itself is left alone. As root the ranks are root's too, which Open MPI is "
      "told.\n"
      "Writes scaling.md, scaling.csv, scaling.json and, with gnuplot, pictures of throughput,\n"
      "efficiency and lost time; logs and results of the runs are in runs/ beside them.\n"
      "Exit code 7: in TREE order the weights were not the same on all world sizes. Where a run\n"
      "fails the command ends with the run's exit code.");
  command->callback([options, &selected] {
    selected = [options](Session& session) { return scale_command(session, *options); };
  });
}

}  // namespace lockstep
