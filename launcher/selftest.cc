// lockstep selftest
#include <fmt/core.h>

#include <cstdio>

#include "collectives/agreement.h"
#include "launcher/devices.h"
#include "launcher/op_parity.h"
#include "launcher/results.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/threads.h"

namespace lockstep {
namespace {

struct SelftestOptions {
  CommonOptions common;
  bool all = false;
};

struct Outcome {
  int checked = 0, failed = 0;
  Json json = Json::array();
};

void print(const OpDeviation& found, const std::string& where) {
  fmt::print("{:6} {:28} {:44} {:36} {:9.2e} of {:g}\n",
             found.passed() ? "ok" : "FAILED",
             where,
             found.op,
             found.tensor,
             found.relative,
             found.limit);
}

void run_case(const ParityCase& test, Device& device, DType compute, bool all, Outcome& outcome) {
  const std::string where = fmt::format("{} {}", name_of(compute), test.name);
  double worst = 0;
  int failed = 0;
  for (const OpDeviation& found : compare_ops(test, device, compute)) {
    ++outcome.checked;
    failed += found.passed() ? 0 : 1;
    worst = std::max(worst, found.relative);
    if (all || !found.passed()) print(found, where);
    outcome.json.push_back(Json::object({{"case", test.name},
                                         {"dtype", name_of(compute)},
                                         {"op", found.op},
                                         {"tensor", found.tensor},
                                         {"relative", found.relative},
                                         {"limit", found.limit},
                                         {"passed", found.passed()}}));
  }
  outcome.failed += failed;
  fmt::print(
      "{:6} {:28} worst output off by {:.2e}\n", failed == 0 ? "ok" : "FAILED", where, worst);
  std::fflush(stdout);
}

ExitCode selftest(Session& session, const SelftestOptions& options) {
  init_log(options.common.log_level, session.communicator().rank(), session.communicator().size());
  const std::unique_ptr<Device> device = choose_device(session, options.common);
  bool failed = false;
  run_on_root(session.communicator(), [&] {
    check_result_path("--json", options.common.json);
    set_compute_threads(available_cpus());
    Outcome outcome;
    for (const DType compute : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const ParityCase& test : parity_cases())
        run_case(test, *device, compute, options.all, outcome);
    }
    fmt::print("{} outputs of ops compared on {}: {} failed\n",
               outcome.checked,
               device->description(),
               outcome.failed);
    if (!options.common.json.empty())
      write_file_atomically(options.common.json,
                            Json::object({{"device", device->description()},
                                          {"checked", outcome.checked},
                                          {"failed", outcome.failed},
                                          {"outputs", outcome.json}})
                                    .dump({.indent = 1}) +
                                "\n");
    failed = outcome.failed > 0;
  });
  return failed ? ExitCode::kNumeric : ExitCode::kOk;
}

}  // namespace

CommandSpec selftest_command() {
  auto options = std::make_shared<SelftestOptions>();
  options->common.device = "cuda";
  CommandSpec command{
      .name = "selftest",
      .help = "Compare every op on this machine's GPU with the CPU, in FP32, BF16 and FP16"};
  add_output_options(command, options->common);
  command.add("--all", &options->all, "Print every output, not only those that are off");
  command.footer =
      "Ends with exit code 7 when an output is further off than rounding explains: then do not "
      "train there.";
  command.run = [options](Session& session) { return selftest(session, *options); };
  return command;
}

}  // namespace lockstep
