// lockstep selftest
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "collectives/agree/agreement.h"
#include "launcher/bench/op_parity.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/ranks/devices.h"
#include "launcher/ranks/session.h"
#include "runtime/base/cpus.h"
#include "runtime/base/log.h"
#include "runtime/base/threads.h"
#include "runtime/graph/op_kind.h"

namespace lockstep::launcher {
namespace {

struct SelftestOptions {
  CommonOptions common;
  bool all = false, list = false;
  std::vector<std::string> only, precisions, skipped_ops;
};

// The cases with these names. A word that is no case's name selects the cases whose names contain
// it.
std::vector<ParityCase> chosen_cases(const std::vector<std::string>& words) {
  std::vector<ParityCase> all = parity_cases(), chosen;
  if (words.empty()) return all;
  for (const std::string& word : words) {
    const bool whole =
        std::ranges::any_of(all, [&](const ParityCase& c) { return c.name == word; });
    const size_t before = chosen.size();
    std::copy_if(all.begin(), all.end(), std::back_inserter(chosen), [&](const ParityCase& c) {
      return whole ? c.name == word : c.name.find(word) != std::string::npos;
    });
    if (chosen.size() == before)
      throw ConfigError("--only: no case has '{}' in its name; --list prints them", word);
  }
  return chosen;
}

bool chosen(const std::vector<std::string>& precisions, const std::string& name) {
  return precisions.empty() || std::ranges::find(precisions, name) != precisions.end();
}

bool is_kind(const std::string& name) {
  for (int kind = 0; kind < static_cast<int>(graph::OpKind::kCount); ++kind)
    if (name == graph::name_of(static_cast<graph::OpKind>(kind))) return true;
  return false;
}

// Each must be a kind of op, or begin with a precision and a case.
void check_skipped_ops(const std::vector<std::string>& skipped) {
  const std::vector<ParityCase> cases = parity_cases();
  for (const std::string& op : skipped) {
    bool found = is_kind(op);
    for (const ParityMode& mode : parity_modes()) {
      for (const ParityCase& test : cases)
        found = found || op.rfind(fmt::format("{} {}: ", mode.name, test.name), 0) == 0;
    }
    if (!found)
      throw ConfigError(
          "--skip-op: '{}' is not a kind of op, such as 'layer_norm', and does not begin with a "
          "precision and a case, such as 'BF16 {}: '",
          op,
          cases.front().name);
  }
}

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

// The ops of --skip-op for this case, without the case's name.
std::vector<std::string> skipped_in(const std::vector<std::string>& all, const std::string& where) {
  std::vector<std::string> ops;
  for (const std::string& op : all) {
    if (is_kind(op)) ops.push_back(op);
    if (op.rfind(where + ": ", 0) == 0) ops.push_back(op.substr(where.size() + 2));
  }
  return ops;
}

std::vector<OpDeviation> compare(const ParityCase& test,
                                 exec::Device& device,
                                 const ParityMode& mode,
                                 const std::vector<std::string>& skipped_ops) {
  const std::string where = fmt::format("{} {}", mode.name, test.name);
  try {
    return compare_ops(test, device, mode, skipped_in(skipped_ops, where));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", where, error.what()));
  }
}

void run_case(const ParityCase& test,
              exec::Device& device,
              const ParityMode& mode,
              const SelftestOptions& options,
              Outcome& outcome) {
  const std::string where = fmt::format("{} {}", mode.name, test.name);
  double worst = 0;
  int failed = 0;
  for (const OpDeviation& found : compare(test, device, mode, options.skipped_ops)) {
    ++outcome.checked;
    failed += found.passed() ? 0 : 1;
    worst = std::max(worst, found.relative);
    if (options.all || !found.passed()) print(found, where);
    outcome.json.push_back(Json::object({{"case", test.name},
                                         {"precision", mode.name},
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
  if (options.list) {
    collectives::run_on_root(session.communicator(), [] {
      for (const ParityCase& test : parity_cases()) fmt::print("{}\n", test.name);
    });
    return ExitCode::kOk;
  }
  const std::unique_ptr<exec::Device> device = choose_device(session, options.common);
  bool failed = false;
  collectives::run_on_root(session.communicator(), [&] {
    require_result_path("--json", options.common.json);
    set_compute_threads(usable_cpus());
    Outcome outcome;
    const std::vector<ParityCase> cases = chosen_cases(options.only);
    check_skipped_ops(options.skipped_ops);
    for (const ParityMode& mode : parity_modes()) {
      if (!chosen(options.precisions, mode.name)) continue;
      for (const ParityCase& test : cases) run_case(test, *device, mode, options, outcome);
    }
    fmt::print("{} outputs of ops compared on {}: {} failed\n",
               outcome.checked,
               device->description(),
               outcome.failed);
    write_json(options.common.json,
               Json::object({{"device", device->description()},
                             {"checked", outcome.checked},
                             {"failed", outcome.failed},
                             {"outputs", outcome.json}}));
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
      .help = "Compare every op on this machine's GPU with the CPU, in FP32, BF16, FP16 and TF32",
      .also = "self_test"};
  add_output_options(command, options->common);
  command.add("--all", &options->all, "Print every output, not only those that deviate too much");
  std::vector<std::string> modes;
  for (const ParityMode& mode : parity_modes()) modes.push_back(mode.name);
  command.add("--precision",
              &options->precisions,
              "Precisions to compare; by default all",
              {.with_commas = true, .allowed = OneOf{modes}});
  command.add("--only",
              &options->only,
              "Only the case with this name, or the cases whose names contain it; can be repeated",
              {.one_each_time = true});
  command.add(
      "--skip-op",
      &options->skipped_ops,
      "Do not run this on the GPU, so that the others can be compared after its fault: a kind of "
      "op, such as layer_norm, or one op as an error names it, such as \"BF16 gpt odd: attention "
      "transformer.h.0.attn\"; can be repeated",
      {.one_each_time = true});
  command.add("--list", &options->list, "Print the names of the cases and exit");
  command.footer =
      "Ends with exit code 7 if an output deviates more than rounding explains: then do not train "
      "on that GPU.";
  command.run = [options](Session& session) { return selftest(session, *options); };
  return command;
}

}  // namespace lockstep::launcher
