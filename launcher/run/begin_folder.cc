#include "launcher/run/begin_folder.h"

#include <fstream>

#include "collectives/agree/agreement.h"
#include "runtime/base/host.h"
#include "runtime/base/log.h"
#include "runtime/base/threads.h"
#include "runtime/config/paths.h"
#include "runtime/cpu/simd_level.h"
#include "runtime/metrics/environment.h"
#include "runtime/run/defaults.h"
#include "runtime/train/folder/run_end.h"

namespace lockstep::launcher {
namespace {

std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

}  // namespace

std::unique_ptr<train::RunFolder> open_run_folder(Session& session, const RunConfig& config) {
  std::unique_ptr<train::RunFolder> folder;
  collectives::run_on_root(session.communicator(), [&] {
    folder = std::make_unique<train::RunFolder>(config.output.run_dir);
    add_log_file(folder->path() / "log.txt");
  });
  return folder;
}

void describe_run(Session& session,
                  const RunConfig& config,
                  const plan::MemoryPlan& memory,
                  const exec::Device& device,
                  const std::string& bits,
                  train::RunFolder* folder) {
  collectives::Communicator& communicator = session.communicator();
  const auto of_ranks = [&](const std::string& mine) {
    return collectives::gather_texts(communicator, mine);
  };
  const std::vector<std::string> hosts = of_ranks(host_name()),
                                 devices = of_ranks(device.description()),
                                 simd = of_ranks(cpu::name_of(cpu::simd_level()));
  collectives::run_on_root(communicator, [&] {
    train::remove_run_end(folder->path());
    train::OptionalFiles& files = folder->optional_files();
    files.write(folder->path() / "config.textproto", config::recorded_text(config));
    metrics::EnvironmentInfo info;
    info.ranks = communicator.size();
    info.threads = compute_threads();
    info.hosts = hosts;
    info.devices = devices;
    info.simd = simd;
    if (!session.library().empty())
      info.libraries.push_back({communicator.name(), session.library()});
    if (!bits.empty())
      info.libraries.push_back({device.ops().separate_memory ? "gpu" : "cpu", bits});
    for (const plan::MemoryRow& row : memory.rows)
      info.memory.emplace_back(plan::name_of(row.kind), static_cast<int64_t>(row.bytes));
    info.git_revision = LOCKSTEP_GIT_REVISION;
    info.command_line = command_line();
    if (info.command_line.empty())
      log_warn(
          "/proc is not mounted: CPU and memory quotas are unknown, ranks cannot share memory, and "
          "environment.json lacks the command line");
    files.write(folder->path() / "environment.json", metrics::environment_text(info));
  });
}

}  // namespace lockstep::launcher
