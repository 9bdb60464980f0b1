// lockstep report RUN
#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "collectives/agree/agreement.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/ranks/session.h"
#include "launcher/report/run_report.h"
#include "launcher/report/scale_report.h"
#include "launcher/run/run_history.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace lockstep::launcher {
namespace {

struct ReportOptions {
  std::string run, against, out;
};

std::string page_of(const ReportOptions& options) {
  if (report::is_scale_folder(options.run)) {
    if (!options.against.empty())
      throw ConfigError("--against compares two runs; '{}' is a folder of lockstep scale",
                        options.run);
    return report::scale_report(options.run);
  }
  const RunHistory run(options.run);
  std::optional<RunHistory> against;
  if (!options.against.empty()) against.emplace(options.against);
  return report::run_report(run, against ? &*against : nullptr);
}

ExitCode write_report(Session& session, const ReportOptions& options) {
  collectives::run_on_root(session.communicator(), [&] {
    const std::string out = options.out.empty()
                                ? (std::filesystem::path(options.run) / "report.html").string()
                                : options.out;
    if (!options.out.empty()) require_result_path("--out", out, {".html", ".htm"});
    const std::string page = page_of(options);
    write_file_atomically(out, page);
    fmt::print("report {}\n", out);
  });
  return ExitCode::kOk;
}

}  // namespace

CommandSpec report_command() {
  auto options = std::make_shared<ReportOptions>();
  CommandSpec command{
      .name = "report",
      .help = "Write an HTML page about a run, or about two: curves, times, memory, energy",
      .also = "summary html dashboard"};
  command.add("RUN_DIR",
              &options->run,
              "A run folder, also of a run that is under way or was killed; or the folder of "
              "lockstep scale",
              {.required = true, .also = "run run_dir dir folder"});
  command.add("--against",
              &options->against,
              "Another run folder: both runs in the same pictures, and what differs",
              {.also = "compare baseline with versus"});
  command.add("--out", &options->out, "The page, .html; by default RUN_DIR/report.html");
  command.footer =
      "The page is one self-contained file. Its curves keep the highest and lowest value of each\n"
      "stretch, so that the page of a long run stays small.";
  command.run = [options](Session& session) { return write_report(session, *options); };
  return command;
}

}  // namespace lockstep::launcher
