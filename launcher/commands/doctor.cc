// lockstep doctor
#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "collectives/agree/agreement.h"
#include "launcher/calibrate/calibrate.h"
#include "launcher/calibrate/measure_network.h"
#include "launcher/command_line/common_options.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/doctor/examine.h"
#include "launcher/doctor/fields.h"
#include "launcher/doctor/judge.h"
#include "launcher/processes/run_process.h"
#include "launcher/ranks/session.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/base/time.h"

namespace lockstep::launcher {
namespace {

using doctor::Findings;
using doctor::Level;

struct DoctorOptions {
  CommonOptions common;
  double limit_s = 10;
  std::string calibrate;  // --calibrate: the hardware file to write
  CalibrationOptions calibration;
};

// Measures the network between the hosts of this run, and writes it into the hardware file.
void calibrate_network(Session& session, const std::string& path) {
  constexpr size_t kMaxFileBytes = size_t{16} << 20;
  Hardware hardware;
  collectives::run_on_root(session.communicator(), [&] {
    require_result_path("--calibrate", path, {".textproto"});
    if (!std::filesystem::exists(path))
      throw ConfigError(
          "--calibrate {0}: no such file; first measure one of the hosts: lockstep doctor "
          "--calibrate {0}, without mpirun or srun",
          path);
    hardware = config::parse_hardware(read_file(path, kMaxFileBytes), path);
    if (hardware.kind == Hardware::Kind::kGpu)
      throw ConfigError(
          "--calibrate {}: describes a GPU; allowed: the file of a CPU node, as only the exchange "
          "between CPUs is measured",
          path);
  });
  const Link link = measure_network(session);
  collectives::run_on_root(session.communicator(), [&] {
    set_network(hardware, link);
    write_file_atomically(path, config::to_text(hardware));
    fmt::print(
        "network: {:.3g} Gbit/s a host, {:.3g} us for an empty message, {:.3g} MB while "
        "ranks compute; written to {}\n",
        8 * link.gbytes_per_s,
        link.latency_us,
        link.unattended_mbytes,
        path);
  });
}

// Measures this machine, or the network of several, and writes the hardware file.
ExitCode run_calibration(Session& session, DoctorOptions& options) {
  namespace fs = std::filesystem;
  collectives::Communicator& communicator = session.communicator();
  init_log(options.common.log_level, communicator.rank(), communicator.size());
  if (communicator.size() > 1 || !session.library().empty()) {
    if (!options.calibration.only.empty())
      throw collectives::AgreedError(
          ExitCode::kUsage,
          "--only: allowed: alone, without mpirun or srun; with ranks on "
          "several hosts only their network is measured");
    calibrate_network(session, options.calibrate);
    return ExitCode::kOk;
  }
  require_result_path("--calibrate", options.calibrate, {".textproto"});
  options.calibration.name = fs::path(options.calibrate).stem().string();
  const fs::path runs = options.calibrate + ".runs";
  fs::create_directories(runs);
  try {
    const Hardware hardware = calibrate(options.calibration, runs.string());
    write_file_atomically(options.calibrate, config::to_text(hardware));
  } catch (const Interrupted& interrupted) {
    std::fflush(nullptr);
    std::raise(interrupted.signal());  // this process ends by the same signal
    throw;
  }
  std::error_code ignored;
  fs::remove_all(runs, ignored);
  fmt::print(
      "hardware file {}: lockstep plan CONFIG --on {}\n", options.calibrate, options.calibrate);
  return ExitCode::kOk;
}

// Whether a launcher has started this process as another one than the first of several.
bool is_later_process() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "RANK"}) {
    const char* const number = std::getenv(name);
    if (number != nullptr) return std::string_view(number) != "0";
  }
  return false;
}

// Shares the time among what may take long.
doctor::ExamineOptions limits_of(const DoctorOptions& options, const Session& session) {
  doctor::ExamineOptions examine;
  examine.run_dir = options.common.run_dir;
  examine.why_apart = session.why_apart();
  examine.copies_s = 0.4 * options.limit_s;
  examine.exchanges_s = 0.1 * options.limit_s;
  examine.disk_limit_s = options.limit_s;
  examine.gpu_limit_s = 3 * options.limit_s;
  return examine;
}

void print(const Findings& findings, const doctor::RunFacts& run, double seconds) {
  const size_t hosts = doctor::hosts_of(run).size();
  for (const std::string& line : doctor::lines_of(findings, hosts))
    fmt::print("{}\n", escape_controls(line));
  const int errors = findings.count(Level::kError), warnings = findings.count(Level::kWarning);
  fmt::print("{}, {} on {} in {:.1f} s\n",
             counted(errors, "error"),
             counted(warnings, "warning"),
             counted(hosts, "host"),
             seconds);
}

Json to_json(const Findings& findings, const doctor::RunFacts& run, double seconds) {
  return Json::object({{"errors", findings.count(Level::kError)},
                       {"warnings", findings.count(Level::kWarning)},
                       {"seconds", seconds},
                       {"findings", doctor::to_json(findings)},
                       {"facts", doctor::json_of(run)}});
}

ExitCode run_doctor(Session& session, const DoctorOptions& options) {
  const double begin_ms = now_ms();
  init_log(options.common.log_level, session.communicator().rank(), session.communicator().size());
  collectives::run_on_root(session.communicator(),
                           [&] { require_result_path("--json", options.common.json); });
  // Where each process is alone, the first one examines its host, and the others only print why.
  if (!session.why_apart().empty() && is_later_process())
    throw ConfigError("this process does not find the others: {}", session.why_apart());
  const doctor::RunFacts run = doctor::examine(session, limits_of(options, session));
  const Findings findings = doctor::judge(run);
  collectives::run_on_root(session.communicator(), [&] {
    const double seconds = (now_ms() - begin_ms) / 1000;
    print(findings, run, seconds);
    write_json(options.common.json, to_json(findings, run, seconds));
  });
  return findings.count(Level::kError) > 0 ? ExitCode::kUsage : ExitCode::kOk;
}

}  // namespace

CommandSpec doctor_command() {
  auto options = std::make_shared<DoctorOptions>();
  options->common.run_dir = "runs";
  options->common.log_level = "warn";
  CommandSpec command{
      .name = "doctor",
      .help = "Examine this machine, or all hosts of a run, for what makes training fail or slow",
      .runs_apart = true};
  command.add("--run-dir",
              &options->common.run_dir,
              "Folder on the file system to examine, where runs will be written",
              {.show_default = true, .per_rank = true});
  command.add(
      "--limit",
      &options->limit_s,
      "Seconds that measurements may take; a disk that does not answer is given up after them, "
      "GPUs after three times as many",
      {.show_default = true, .allowed = Between{0.1, 3600}});
  command.add("--calibrate",
              &options->calibrate,
              "Instead measure this machine for some minutes, and write a hardware file for "
              "`lockstep plan --on FILE`. With a rank on each of several hosts, add their network "
              "to that file",
              {.also = "benchmark"});
  command.add("--types",
              &options->calibration.types,
              "With --calibrate: in what the ops are measured, FP32, BF16 or BF16X3",
              {.with_commas = true});
  command.add("--only",
              &options->calibration.only,
              "With --calibrate: only networks whose names begin so, such as mlp, gpt, resnet");
  add_output_options(command, options->common);
  command.footer =
      "Start it as the training will be started: alone, with mpirun, srun or torchrun, or with\n"
      "RANK and WORLD_SIZE. Each finding is ok, a warning or an error, with what it costs and how\n"
      "to mend it. Ends with exit code 2 if there is an error; warnings do not count.";
  command.run = [options](Session& session) {
    return options->calibrate.empty() ? run_doctor(session, *options)
                                      : run_calibration(session, *options);
  };
  return command;
}

}  // namespace lockstep::launcher
