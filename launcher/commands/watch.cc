// lockstep watch RUN_DIR
#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "collectives/agree/agreement.h"
#include "launcher/commands/commands.h"
#include "launcher/ranks/session.h"
#include "launcher/run/run_history.h"
#include "launcher/watch/screen.h"
#include "launcher/watch/terminal.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/flight_reader.h"
#include "runtime/metrics/environment.h"

namespace lockstep::launcher {
namespace {

using watch::Terminal;

constexpr double kRedrawSeconds = 1;

struct WatchOptions {
  std::string folder;
  bool once = false;
  bool wait = false;
};

// Whether the terminal's characters are UTF-8, by the variables of the locale.
bool has_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string locale = value;
    return locale.find("UTF-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  }
  return false;
}

bool wants_colors() {
  const char* value = std::getenv("NO_COLOR");
  return value == nullptr || *value == '\0';
}

std::vector<std::string> lines_of(const RunHistory& run, const watch::ScreenOptions& options) {
  const auto record = FlightReader::copy(flight_path(run.folder / "flight", 0));
  const std::optional<FlightMoment> rank_0 = record ? std::optional(record->now()) : std::nullopt;
  return watch::screen_of(run, rank_0 ? &*rank_0 : nullptr, options);
}

void print_once(const RunHistory& run) {
  watch::ScreenOptions options{.utf8 = has_utf8(), .now = metrics::seconds_since_1970()};
  if (Terminal::is_there()) options.columns = Terminal::size().columns;
  for (const std::string& line : lines_of(run, options)) fmt::print("{}\n", line);
  std::fflush(stdout);
}

// Draws until the user leaves. Returns the signal by which that was; 0: none.
int follow(const WatchOptions& given) {
  Terminal terminal;
  std::unique_ptr<RunHistory> run;
  std::string trouble;  // the newest error of reading the folder
  while (true) {
    const Terminal::Size size = Terminal::size();
    try {
      if (run)
        run->update();
      else if (is_run_folder(given.folder))
        run = std::make_unique<RunHistory>(given.folder);
      trouble.clear();
    } catch (const IoError& error) {  // of a file server, for example: the next attempt may succeed
      trouble = error.what();
    }
    std::vector<std::string> lines = {"waiting for the run folder " + given.folder};
    if (run)
      lines = lines_of(*run,
                       {.columns = size.columns,
                        .rows = size.rows - 1,
                        .utf8 = has_utf8(),
                        .colors = wants_colors(),
                        .now = metrics::seconds_since_1970()});
    lines.resize(static_cast<size_t>(std::max(size.rows - 1, 1)));
    lines.push_back(trouble.empty() ? "q quits; the run goes on" : trouble);
    terminal.draw(lines);
    if (terminal.wait(kRedrawSeconds) == Terminal::Event::kQuit) return terminal.signal();
  }
}

ExitCode watch_run(Session& session, const WatchOptions& options) {
  if (session.communicator().size() > 1)
    throw collectives::AgreedError(ExitCode::kUsage,
                                   "watch: started as several ranks; start it alone");
  const bool draws = Terminal::is_there() && !options.once;
  while (options.wait && !draws && !is_run_folder(options.folder))
    std::this_thread::sleep_for(std::chrono::seconds(1));
  if (!options.wait || !draws) {
    if (!lockstep::is_there(options.folder))
      throw CheckpointError("'{}' does not exist; --wait waits for it", options.folder);
    const RunHistory run(options.folder);  // or an error that reports what is missing
    if (!draws) {
      print_once(run);
      return ExitCode::kOk;
    }
  }
  if (const int number = follow(options); number != 0) {
    ::signal(number, SIG_DFL);
    ::raise(number);  // as a program ends that does not handle it
  }
  return ExitCode::kOk;
}

}  // namespace

CommandSpec watch_command() {
  auto options = std::make_shared<WatchOptions>();
  CommandSpec command{.name = "watch",
                      .help = "Follow a run in the terminal",
                      .also = "follow monitor top tail dashboard status"};
  command.add("RUN_DIR",
              &options->folder,
              "A run folder; the run may be on another host that shares the folder, and have ended",
              {.required = true, .also = "run run_dir logdir log_dir input i"});
  command.add("--once", &options->once, "Print the screen's lines once, and end");
  command.add("--wait", &options->wait, "Wait for the folder if it is not there yet");
  command.footer =
      "The screen is redrawn once a second; q quits, and the run goes on. If the standard output\n"
      "is not a terminal, or TERM is dumb, the lines are printed once. NO_COLOR=1 draws without\n"
      "colors. Without a UTF-8 locale (LC_ALL, LC_CTYPE, LANG) the curve is of ASCII characters.";
  command.run = [options](Session& session) { return watch_run(session, *options); };
  return command;
}

}  // namespace lockstep::launcher
