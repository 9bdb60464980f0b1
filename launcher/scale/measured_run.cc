#include "launcher/scale/measured_run.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "launcher/processes/run_process.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/host.h"
#include "runtime/base/text.h"
#include "runtime/base/time.h"
#include "runtime/train/folder/run_folder.h"

namespace lockstep::scale {
namespace {

constexpr size_t kLogLimit = size_t{64} << 20;
constexpr size_t kTailLines = 12;

// Settings of every run, so that nothing but its steps takes time.
constexpr const char* kQuiet =
    "checkpoint.every=0 checkpoint.at_end=false output.tensorboard=false output.timeline=false "
    "train.hash_every=0 eval.every=0 eval.early_stop_patience=0 eval.max_samples=1";

std::vector<std::string> training_command(const RunSetup& setup,
                                          const World& world,
                                          const std::filesystem::path& run_dir,
                                          const std::filesystem::path& result) {
  std::vector<std::string> words{program_path().string(), "train"};
  words.insert(words.end(), setup.arguments.begin(), setup.arguments.end());
  const auto set = [&](const std::string& text) { words.insert(words.end(), {"--set", text}); };
  set(fmt::format("train.global_batch={}", world.global_batch));
  set(fmt::format("train.lanes={}", world.lanes));
  set(fmt::format("execution.threads={}", setup.threads));
  for (const std::string& text : words_of(kQuiet)) set(text);
  words.insert(words.end(),
               {"--max-steps",
                std::to_string(setup.steps),
                "--run-dir",
                run_dir.string(),
                "--resume",
                "none",
                "--json",
                result.string()});
  return words;
}

// Removes the folder of an earlier run with the same name, unless that still runs. Anything else
// than a folder is left to `train`, which rejects it.
void remove_folder(const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(std::filesystem::symlink_status(folder, error))) return;
  const train::RunFolder held(folder);
  std::filesystem::remove_all(folder, error);
  if (error) throw IoError("remove folder", folder, error.value());
}

// The exit code that follows from a run's `code`, which may be its launcher's.
ExitCode exit_code_for(int code) {
  for (const ExitCode known : {ExitCode::kUsage,
                               ExitCode::kData,
                               ExitCode::kCheckpoint,
                               ExitCode::kMemory,
                               ExitCode::kPeer,
                               ExitCode::kNumeric,
                               ExitCode::kInternal,
                               ExitCode::kPreempted})
    if (code == static_cast<int>(known)) return known;
  return ExitCode::kPeer;
}

double busy_here(const std::vector<int>& cpus) {
  std::ifstream file("/proc/stat");
  return busy_cpu_seconds(
      {std::istreambuf_iterator<char>(file), {}}, cpus, static_cast<double>(sysconf(_SC_CLK_TCK)));
}

// Ticks of a line "cpu3 ..." in /proc/stat; negative for other lines.
double busy_ticks(const std::string& text, const std::vector<int>& cpus) {
  std::istringstream line(text);
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  line >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  const bool wanted =
      std::ranges::any_of(cpus, [&](int cpu) { return name == "cpu" + std::to_string(cpu); });
  return line && wanted ? user + nice + system + irq + softirq + steal : -1;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// CPU time of this process and of all its descendants that have ended and been waited for.
double own_cpu_seconds() {
  double total = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    total += seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  return total;
}

}  // namespace

const char* name_of(Mode mode) { return mode == Mode::kWeak ? "weak" : "strong"; }

void read_result(const Json& result, MeasuredRun& run) {
  run.weights_hash = result.at("weights_hash").get<std::string>();
  run.transport = result.value("transport", std::string());
  const Json& exchange = result.at("exchange");
  run.exchange = {exchange.at("buckets").get<int64_t>(),
                  exchange.at("largest_bucket_bytes").get<int64_t>(),
                  exchange.at("shares_memory").get<bool>(),
                  exchange.value("network_bytes_per_step_per_node", int64_t{0})};
  run.joules_per_step = result.value("joules_per_step", -1.0);
  if (const Json* forecast = result.find("forecast")) {
    run.predicted_low_ms = forecast->at("step_ms").at(size_t{0}).get<double>();
    run.predicted_high_ms = forecast->at("step_ms").at(size_t{1}).get<double>();
  }
  run.energy_sources = result.value("energy_sources", std::string());
  run.energy_not_readable = result.value("energy_not_readable", std::string());
  for (const Json& rank : result.at("ranks")) {
    train::RankTimes& times = run.ranks.emplace_back();
    times.rank = rank.at("rank").get<int>();
    times.host = rank.at("host").get<std::string>();
    times.steps = rank.at("steps").get<int64_t>();
    for (const train::RankMean& mean : train::kRankMeans)
      times.*mean.value = rank.at(mean.name).get<double>();
  }
}

std::string why_failed(const std::string& log) {
  std::deque<std::string> own, all;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(" \t-") == std::string::npos) continue;
    all.push_back(line);
    if (line.starts_with("lockstep: ")) own.push_back(line.substr(sizeof("lockstep: ") - 1));
  }
  std::deque<std::string>& shown = own.empty() ? all : own;
  while (shown.size() > kTailLines) shown.pop_front();
  std::string text;
  for (const std::string& line : shown) append_item(text, line, "\n  ");
  return text.empty() ? "it printed nothing" : text;
}

MeasuredRun run_world(const RunSetup& setup, const World& world, int repeat) {
  const std::string name = fmt::format("{}-{}-{}", name_of(world.mode), world.ranks, repeat);
  const std::filesystem::path run_dir = setup.folder / name,
                              result = setup.folder / (name + ".json"),
                              log = setup.folder / (name + ".log");
  MeasuredRun run;
  run.world = world;
  run.repeat = repeat;
  WorldStart start = start_of(setup.launcher, setup.here, world.ranks, setup.threads);
  run.binding = start.binding;
  run.oversubscribed = start.oversubscribed;
  run.command = std::move(start.command);
  for (std::string& word : training_command(setup, world, run_dir, result))
    run.command.push_back(std::move(word));
  std::error_code ignored;
  std::filesystem::remove(result, ignored);  // of an earlier measurement
  remove_folder(run_dir);
  const OtherWork other(setup.here.numbers);
  const launcher::ProcessEnd end = launcher::run_process(run.command, log, setup.limit_s);
  if (setup.launcher.starts_here()) run.other_cpus = other.cpus();
  const std::string what =
      fmt::format("{} run of {} rank{}", name_of(world.mode), world.ranks, plural(world.ranks));
  if (end.out_of_time)
    throw CommError("{}: not done after {:.0f} s (--limit); its output is in {}",
                    what,
                    setup.limit_s,
                    log.string());
  if (end.exit_code != 0)
    throw Error(exit_code_for(end.exit_code),
                fmt::format("{} failed with exit code {}: {} (all of it: {})",
                            what,
                            end.exit_code,
                            why_failed(read_file(log, kLogLimit)),
                            log.string()));
  try {
    read_result(Json::parse(read_file(result, kLogLimit)), run);
    run.environment = Json::parse(read_file(run_dir / "environment.json", kLogLimit));
  } catch (const JsonError& error) {
    throw CommError("{}: cannot read its result {}: {}", what, result.string(), error.what());
  }
  if (run.ranks.size() != static_cast<size_t>(world.ranks) || run.ranks[0].steps == 0)
    throw CommError("{}: {} has the times of {} ranks over {} steps",
                    what,
                    result.string(),
                    run.ranks.size(),
                    run.ranks.empty() ? 0 : run.ranks[0].steps);
  return run;
}

double busy_cpu_seconds(const std::string& stat,
                        const std::vector<int>& cpus,
                        double ticks_per_second) {
  std::istringstream lines(stat);
  double total = -1;
  for (std::string line; std::getline(lines, line);) {
    const double ticks = busy_ticks(line, cpus);
    if (ticks >= 0) total = std::max(total, 0.0) + ticks;
  }
  return total / ticks_per_second;
}

OtherWork::OtherWork(std::vector<int> cpus)
    : cpus_(std::move(cpus)),
      start_ms_(now_ms()),
      busy_s_(busy_here(cpus_)),
      own_s_(own_cpu_seconds()) {}

double OtherWork::cpus() const {
  const double passed_s = (now_ms() - start_ms_) / 1000;
  const double busy_s = busy_here(cpus_) - busy_s_, own_s = own_cpu_seconds() - own_s_;
  if (busy_s_ < 0 || passed_s <= 0) return 0;
  return std::max(0.0, busy_s - own_s) / passed_s;
}

}  // namespace lockstep::scale
