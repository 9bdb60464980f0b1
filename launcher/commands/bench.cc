// lockstep bench ops CONFIG
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "launcher/bench/op_timing.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/ranks/first_rank.h"
#include "runtime/base/log.h"
#include "runtime/base/threads.h"
#include "runtime/run/lanes.h"
#include "runtime/run/precision.h"
#include "runtime/run/prepared_run.h"
#include "runtime/run/threads.h"

namespace lockstep::launcher {
namespace {

struct BenchOptions {
  CommonOptions common;
  int repeats = 5;
};

void print_table(const std::vector<OpTiming>& timings, const Ceilings& ceilings) {
  double step_us = 0;
  for (const OpTiming& timing : timings) step_us += timing.us * timing.count;
  fmt::print("{:28}{:>6}{:>11}{:>7}{:>9}{:>7}{:>9}{:>7}  {:24}{}\n",
             "op",
             "count",
             "us each",
             "share",
             "GB/s",
             "",
             "TFLOP/s",
             "",
             "reached",
             "inputs");
  std::map<std::string, double> peaks;
  for (const OpTiming& timing : timings) {
    double& peak = peaks[timing.units];
    peak = std::max(peak, timing.peak_tflops);
    const Reached best = reached(timing, ceilings);
    fmt::print("{:28}{:>6}{:>11.1f}{:>6.1f}%{:>9.0f}{:>6.0f}%{:>9.2f}{:>6.0f}%  {:24}{}\n",
               timing.op,
               timing.count,
               timing.us,
               100 * timing.us * timing.count / step_us,
               timing.gbytes_per_s,
               100 * timing.gbytes_per_s / ceilings.copy_gbytes_per_s,
               timing.tflops,
               100 * timing.tflops / timing.peak_tflops,
               fmt::format("{:.0f}% of {}", 100 * best.share, best.ceiling),
               timing.shapes);
  }
  std::string line = fmt::format("{:.0f} GB/s of a large copy", ceilings.copy_gbytes_per_s);
  for (const auto& [units, tflops] : peaks)
    line += fmt::format(", {:.2f} TFLOP/s of {}", tflops, units);
  fmt::print("{:28}{:>6}{:>11.1f} us for one lane\nceilings: {}\n", "all", "", step_us, line);
}

Json to_json(const std::vector<OpTiming>& timings,
             const Ceilings& ceilings,
             const exec::Device& device,
             const std::string& placeholder) {
  Json json;
  json["device"] = device.description();
  if (!placeholder.empty()) json["assumed"] = placeholder;
  json["copy_gbytes_per_s"] = ceilings.copy_gbytes_per_s;
  if (ceilings.matmul_tflops > 0) json["matmul_tflops"] = ceilings.matmul_tflops;
  for (const OpTiming& timing : timings) {
    const Reached best = reached(timing, ceilings);
    json["ops"].push_back(Json::object({{"op", timing.op},
                                        {"inputs", timing.shapes},
                                        {"count", timing.count},
                                        {"us", timing.us},
                                        {"gbytes_per_s", timing.gbytes_per_s},
                                        {"tflops", timing.tflops},
                                        {"peak_tflops", timing.peak_tflops},
                                        {"units", timing.units},
                                        {"ceiling", best.ceiling},
                                        {"share_of_ceiling", best.share}}));
  }
  return json;
}

void bench_ops(const BenchOptions& options, exec::Device& device) {
  require_result_path("--json", options.common.json);
  const run::OpenedConfig given = run::choose_lanes(read_config(options.common)).opened;
  const run::OpenedConfig opened =
      run::choose_precision(given, run::RunPurpose::kTrain, device.ops()).opened;
  set_compute_threads(run::choose_threads(opened.config, share_of(find_cpu_limits(), 1)));
  const run::PreparedRun prepared = run::prepare_run(opened,
                                                     collectives::Topology{},
                                                     run::RunPurpose::kTrain,
                                                     device.ops(),
                                                     {.may_assume_data = true});
  for (const std::string& warning : run::warnings_of(prepared)) log_warn("{}", warning);
  const exec::BackendRequest request = {prepared.config.execution.tf32,
                                        run::compute_type(prepared.config.execution.precision),
                                        /*record_repeated_work=*/!options.common.eager};
  const Ceilings ceilings = measure_ceilings(device, request, options.repeats);
  std::vector<OpTiming> timings =
      time_ops(prepared.graphs->training, device, request, ceilings, options.repeats);
  std::ranges::sort(
      timings, std::greater(), [](const OpTiming& timing) { return timing.us * timing.count; });
  const std::string& placeholder = prepared.data->summary.placeholder;
  if (!placeholder.empty()) fmt::print("{}\n", placeholder);
  fmt::print("{}, one lane of {} samples, {}\n",
             device.description(),
             prepared.config.train.global_batch / prepared.config.train.lanes,
             lockstep::name_of(request.compute));
  print_table(timings, ceilings);
  write_json(options.common.json, to_json(timings, ceilings, device, placeholder));
}

}  // namespace

CommandSpec bench_command() {
  auto options = std::make_shared<BenchOptions>();
  CommandSpec ops{
      .name = "ops",
      .help =
          "Time every op of a config's training step, and compare it with a large copy and the "
          "peak of the arithmetic"};
  add_common_options(ops, options->common);
  ops.add("--repeats",
          &options->repeats,
          "Measurements of each op; the median is reported",
          {.show_default = true, .allowed = WholeNumbers{1, 1000}});
  ops.footer =
      "GB/s count every input and output as moved once, TFLOP/s a multiply-add as two; the "
      "percentages are of the ceilings: a large copy, measured first, and on a GPU a large "
      "product, on a CPU the peak of the units that the op uses (multiply-adds or AMX tiles), "
      "measured beside the op on all compute threads. \"Reached\" is the larger of both. An op is "
      "repeated on the same memory: what fits in the caches may be faster than the copy. "
      "Convolutions by Winograd's algorithm do fewer operations than are counted. Data files may "
      "be missing if the config describes the data.";
  ops.run = [options](Session& session) {
    return on_first_device(
        session, options->common, [&](exec::Device& device) { bench_ops(*options, device); });
  };
  return {.name = "bench",
          .help = "Measure parts of a run",
          .subcommands = {bench_collectives_command(), ops},
          .also = "benchmark profile"};
}

}  // namespace lockstep::launcher
