#include "launcher/calibrate/calibrate.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>

#include "launcher/calibrate/machine_rates.h"
#include "launcher/calibrate/probes.h"
#include "launcher/forecast/timed_run.h"
#include "launcher/processes/run_process.h"
#include "launcher/scale/measured_run.h"
#include "runtime/base/cpus.h"
#include "runtime/base/file.h"
#include "runtime/base/host.h"
#include "runtime/base/text.h"
#include "runtime/base/threads.h"
#include "runtime/config/parse.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/peak.h"
#include "runtime/run/lanes.h"
#include "runtime/run/precision.h"

namespace lockstep::launcher {
namespace {

namespace fs = std::filesystem;

constexpr double kLimit_s = 600;  // of a run
constexpr size_t kTimelineLimit = size_t{1} << 30;

struct Layout {
  int ranks, threads;  // threads of each rank
  int lanes;           // of the run
};

std::vector<Layout> layouts_of(int threads) {
  if (threads < 2) return {{1, 1, 1}, {1, 1, 2}};
  return {{1, threads, 2}, {1, 1, 1}, {2, threads / 2, 2}};
}

std::string config_of(const Probe& probe, const Layout& layout, const std::string& type) {
  return fmt::format(
      "name: \"{}\" {} train {{ global_batch: {} lanes: {} steps: {} log_every: {} }} "
      "optimizer {{ {} }} schedule {{ lr: 0.001 }} checkpoint {{ at_end: false }} "
      "execution {{ threads: {} precision: {} bf16x3: {} }} "
      "output {{ tensorboard: false timeline: true }}\n",
      probe.name,
      probe.model,
      probe.batch * layout.ranks,
      layout.lanes,
      probe.steps,
      probe.steps,
      probe.optimizer,
      layout.threads,
      type == "BF16" ? "BF16" : "FP32",
      type == "BF16X3");
}

std::vector<MeasuredOp> measure(const Probe& probe,
                                const Layout& layout,
                                const std::string& type,
                                const exec::Device& device,
                                const fs::path& folder) {
  const std::string name =
      fmt::format("{}-{}-{}x{}x{}", probe.name, type, layout.ranks, layout.threads, layout.lanes);
  const fs::path config = folder / (name + ".textproto"), run_dir = folder / name,
                 log = folder / (name + ".log");
  const std::string text = config_of(probe, layout, type);
  write_file_atomically(config, text);
  std::vector<std::string> command = {program_path().string()};
  if (layout.ranks > 1)
    command.insert(command.end(), {"launch", "-n", std::to_string(layout.ranks), "--"});
  command.insert(command.end(),
                 {"train", config.string(), "--run-dir", run_dir.string(), "--device", "cpu"});
  const ProcessEnd end = run_process(command, log, kLimit_s);
  if (end.out_of_time) throw CommError("the probe {} is not done after {:.0f} s", name, kLimit_s);
  if (end.exit_code != 0)
    throw Error(ExitCode::kInternal,
                fmt::format("the probe {} failed with exit code {}: {}",
                            name,
                            end.exit_code,
                            scale::why_failed(read_file(log, kTimelineLimit))));
  const run::OpenedConfig opened = run::open_config(config::parse_config(text, name, {}));
  const collectives::Topology topology{1, layout.ranks, layout.ranks > 1};
  const run::PreparedRun prepared = run::prepare_run(
      opened, topology, run::RunPurpose::kTrain, device.ops(), {.may_assume_data = true});
  std::vector<MeasuredOp> ops = forecast::measured_ops(
      prepared, Json::parse(read_file(run_dir / "timeline.json", kTimelineLimit)), layout.threads);
  std::error_code ignored;
  fs::remove_all(run_dir, ignored);
  return ops;
}

}  // namespace

Hardware calibrate(const CalibrationOptions& options, const std::string& folder) {
  const int threads = share_of(find_cpu_limits(), 1).cpus;
  const std::unique_ptr<exec::Device> device = cpu::make_device();
  set_compute_threads(threads);
  Hardware hardware;
  hardware.name = options.name;
  hardware.product = fmt::format("{}, measured", host_name());
  hardware.kind = Hardware::Kind::kCpu;
  hardware.cpu.cores = threads;
  hardware.fp32_tflops = cpu::measure_peak_flops(threads) / 1e12;
  hardware.bf16_tflops = cpu::measure_tile_flops(threads) / 1e12;
  hardware.memory_gib = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
                        static_cast<double>(::sysconf(_SC_PAGESIZE)) / 0x1p30;
  hardware.memory_gbytes_per_s = measure_copy_gbytes_per_s();
  const DiskRates disk = measure_disk(folder);
  hardware.disk_write_gbytes_per_s = disk.write_gbytes_per_s;
  hardware.disk_read_gbytes_per_s = disk.read_gbytes_per_s;
  std::vector<MeasuredOp> ops;
  for (const Probe& probe : kProbes) {
    if (!std::string_view(probe.name).starts_with(options.only)) continue;
    for (const std::string& type : options.types)
      for (const Layout& layout : layouts_of(threads)) {
        fmt::print("{} in {}, {} of {}\n",
                   probe.name,
                   type,
                   counted(layout.ranks, "rank"),
                   counted(layout.threads, "thread"));
        std::fflush(stdout);
        for (MeasuredOp& op : measure(probe, layout, type, *device, folder))
          ops.push_back(std::move(op));
      }
  }
  hardware.ops = forecast::merged(std::move(ops));
  FigureSource source;
  source.figures = {"fp32_tflops", "memory_gib", "memory_gbytes_per_s", "cpu.cores"};
  if (hardware.bf16_tflops > 0) source.figures.push_back("bf16_tflops");
  if (disk.write_gbytes_per_s > 0) source.figures.push_back("disk_write_gbytes_per_s");
  if (disk.read_gbytes_per_s > 0) source.figures.push_back("disk_read_gbytes_per_s");
  source.from = "lockstep doctor --calibrate";
  source.date = today();
  source.basis = FigureSource::Basis::kMeasured;
  hardware.sources = {source};
  return hardware;
}

}  // namespace lockstep::launcher
