#include "launcher/run/run_history.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/config/parse.h"
#include "runtime/train/folder/run_end.h"
#include "runtime/train/folder/writer_lock.h"

namespace lockstep::launcher {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxRecord = size_t{16} << 20;
constexpr const char *kMetrics = "metrics.jsonl", *kEnvironment = "environment.json",
                     *kConfig = "config.textproto";

// Empty if the file is missing: a run replaces these files as a whole, and removes end.json.
std::string text_in(const fs::path& path) {
  try {
    return is_there(path) ? read_file(path, kMaxRecord) : "";
  } catch (const IoError&) {
    return "";
  }
}

Json json_in(const fs::path& path) {
  const std::string text = text_in(path);
  try {
    return text.empty() ? Json() : Json::parse(text);
  } catch (const JsonError&) {
    return {};
  }
}

std::string reason_in(const Json& start) {
  std::string reason;
  if (const Json* trouble = start.find("trouble"))
    for (const Json& line : *trouble) append_item(reason, line.get<std::string>(), "; ");
  if (!reason.empty() || !start.contains("ranks")) return reason;
  for (const Json& rank : start.at("ranks")) {
    const Json& code = rank.at("code");
    if (!code.is_null() && code.get<int>() == 0) continue;
    return fmt::format(
        "rank {} on {}: {}",
        rank.at("rank").get<int>(),
        rank.at("host").get<std::string>(),
        code.is_null() ? "its host was lost" : fmt::format("exit code {}", code.get<int>()));
  }
  return reason;
}

std::vector<FailedStart> starts_in(const fs::path& folder) {
  std::vector<FailedStart> starts;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto number = parse_as<int>(entry.path().filename().string());
    if (!number) continue;
    FailedStart start{.number = *number, .reason = {}};
    try {
      const Json json = json_in(entry.path() / "start.json");
      start.reason = reason_in(json);
      start.steps_lost = json.value("steps_lost", int64_t{0});
      start.seconds_lost = json.value("seconds_lost", 0.0);
    } catch (const JsonError&) {
      start.reason = "start.json is damaged";
    }
    starts.push_back(std::move(start));
  }
  std::ranges::sort(starts, {}, &FailedStart::number);
  return starts;
}

}  // namespace

bool is_run_folder(const fs::path& folder) {
  constexpr std::array kFiles{kMetrics, kEnvironment, "end.json", "writer.lock"};
  return std::ranges::any_of(kFiles, [&](const char* file) { return is_file(folder / file); });
}

RunHistory::RunHistory(const fs::path& run_folder)
    : folder(run_folder), metrics(run_folder / kMetrics) {
  if (!is_folder(folder))
    throw CheckpointError("'{}' is not a run folder: {}",
                          folder.string(),
                          is_there(folder) ? "it is a file" : "it does not exist");
  if (!is_run_folder(folder))
    throw CheckpointError(
        "'{}' is not a run folder: it has no metrics.jsonl and no environment.json",
        folder.string());
  update();
}

void RunHistory::update() {
  metrics.update();
  environment = json_in(folder / kEnvironment);
  end = json_in(folder / "end.json");
  const std::string text = text_in(folder / kConfig);
  if (text != config_text) {
    config_text = text;
    config_problem.clear();
    try {
      config = config::parse_recorded_config(text, (folder / kConfig).string());
    } catch (const ConfigError& error) {
      config.reset();
      config_problem = error.what();
    }
  }
  writer.clear();
  if (const auto holder = train::writer_of(folder))
    writer = fmt::format("process {} on {}", holder->pid, holder->host);
  checkpoints.clear();
  best_checkpoint.reset();
  try {
    for (const auto& entry : checkpoint::list_checkpoints(folder / "checkpoints"))
      checkpoints.push_back(entry.step);
    if (const auto best = checkpoint::read_best(folder / "checkpoints"))
      best_checkpoint = best->step;
  } catch (const Error&) {
    // Nothing of a report depends on them.
  }
  failed_starts = starts_in(folder / "starts");
}

RunState RunHistory::state() const {
  if (!end.is_null()) return RunState::kEnded;
  return writer.empty() ? RunState::kStopped : RunState::kRunning;
}

int64_t RunHistory::steps() const { return config ? config->train.steps : 0; }

std::string RunHistory::name() const {
  if (config && !config->name.empty()) return config->name;
  return fs::absolute(folder).lexically_normal().filename().string();
}

std::string RunHistory::state_text() const {
  if (const auto known = train::read_run_end(folder)) return train::text_of(*known);
  const std::string at = steps() > 0 ? fmt::format("step {} of {}", metrics.step(), steps())
                                     : fmt::format("step {}", metrics.step());
  if (!writer.empty()) return fmt::format("running: {}, {}", at, writer);
  return fmt::format("stopped without an end: {}; {}",
                     at,
                     checkpoints.empty()
                         ? "no checkpoint"
                         : fmt::format("newest checkpoint: step {}", checkpoints.back()));
}

double RunHistory::seconds() const {
  double sum_ms = 0;
  for (const char* field : {"step_ms", "left_out_ms"})
    for (const double ms : metrics.of(field).values) sum_ms += ms;
  return sum_ms / 1000;
}

}  // namespace lockstep::launcher
