#include "launcher/forecast/recorded_run.h"

#include <filesystem>
#include <set>

#include "launcher/forecast/timed_run.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace lockstep::launcher {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTimeline = size_t{4} << 30;
constexpr size_t kMaxRecord = size_t{16} << 20;

// The contents of a file of the run folder; `needs` has the reason why it must be there.
std::string text_of(const fs::path& path, size_t limit, const char* needs) {
  try {
    return read_file(path, limit);
  } catch (const IoError& error) {
    throw CheckpointError("--replay: {}; {}", error.what(), needs);
  }
}

Json json_of(const fs::path& path, size_t limit, const char* needs) {
  const std::string text = text_of(path, limit, needs);
  try {
    return Json::parse(text);
  } catch (const JsonError& error) {
    throw CheckpointError("--replay: '{}' is damaged: {}", path.string(), error.what());
  }
}

// The device of the first rank: "cpu" or a GPU's name; empty: not recorded.
std::string device_of(const Json& environment) {
  const Json* devices = environment.find("devices");
  return devices == nullptr || devices->empty() ? "" : devices->at(size_t{0}).get<std::string>();
}

// The hardware of the forecast that the run has kept, or of its GPU; empty: unknown.
std::string recorded_hardware(const fs::path& folder, const Json& environment) {
  if (is_file(folder / "end.json")) {
    const Json end = json_of(folder / "end.json", kMaxRecord, "");
    if (const Json* kept = end.find("forecast")) {
      const auto on = kept->at("on").get<std::string>();
      if (config::find_hardware(on) != nullptr) return on;
    }
  }
  const Hardware* gpu = config::find_gpu(device_of(environment));
  return gpu == nullptr ? "" : gpu->name;
}

int nodes_of(const Json& environment) {
  const Json* hosts = environment.find("hosts");
  if (hosts == nullptr) return 1;
  std::set<std::string> distinct;
  for (const Json& host : *hosts) distinct.insert(host.get<std::string>());
  return std::max(1, static_cast<int>(distinct.size()));
}

void read_into(RecordedRun& run, const fs::path& folder, const std::string& from) {
  const Json timeline = json_of(
      run.timeline, kMaxTimeline, "a run writes its timeline with --set output.timeline=true");
  const char* const kRecord =
      "a timeline is replayed in its run folder, which has the run's record";
  const Json environment = json_of(folder / "environment.json", kMaxRecord, kRecord);
  const std::string config = text_of(run.config, kMaxRecord, kRecord);
  PlanRequest& request = run.request;
  request.common.config = run.config;
  request.on = from.empty() ? recorded_hardware(folder, environment) : from;
  request.on_flag = "--from";
  if (request.on.empty())
    throw ConfigError(
        "--replay: the run's record does not name its hardware; name it with --from, as a file of "
        "lockstep doctor --calibrate for a CPU");
  request.ranks = environment.at("ranks").get<int>();
  request.ranks_per_node = std::max(1, request.ranks / nodes_of(environment));
  find_place(request, run.place);
  if (!run.place.predicts())
    throw ConfigError(
        "--from {}: only its memory is known; allowed: the name of hardware or a file", request.on);
  if ((run.place.device == "cpu") != (device_of(environment) == "cpu"))
    throw ConfigError("--from {}: the run was on '{}'", request.on, device_of(environment));
  run.planned = plan_opened(read_config_of(config, request.common), request, run.place);
  forecast::TimedRun& timed = run.timed;
  timed.prepared = &run.planned.prepared;
  timed.place = run.planned.forecast->place;
  timed.place.threads = environment.at("threads").get<int>();
  timed.ops = forecast::measured_ops(run.planned.prepared, timeline, timed.place.threads);
  forecast::add_step_times(timeline, timed);
  if (timed.step_s <= 0)
    throw CheckpointError("--replay: '{}' has no step but the first; allowed: two steps or more",
                          run.timeline);
}

}  // namespace

std::unique_ptr<RecordedRun> read_recorded_run(const std::string& path, const std::string& from) {
  auto run = std::make_unique<RecordedRun>();
  const fs::path folder = is_folder(path) ? fs::path(path) : fs::path(path).parent_path();
  run->timeline = is_folder(path) ? (folder / "timeline.json").string() : path;
  run->config = (folder / "config.textproto").string();
  try {
    read_into(*run, folder, from);
  } catch (const JsonError& error) {
    throw CheckpointError(
        "--replay: '{}' or environment.json beside it is damaged: {}", run->timeline, error.what());
  }
  return run;
}

forecast::Replay replay_forecast(const RecordedRun& run,
                                 const forecast::RunTerms& terms,
                                 PlannedRun& planned) {
  forecast::Forecast& forecast = *planned.forecast;
  forecast::Place place = forecast.place;
  forecast::Replay replay = forecast::replay_of(run.timed, planned.prepared, place);
  replay.run = run.timeline;
  place.known = &replay.times;
  forecast.step = forecast::forecast_step(planned.prepared, place);
  forecast.run = forecast::forecast_run(planned.prepared, place, forecast.step, terms);
  forecast.replayed = true;
  return replay;
}

}  // namespace lockstep::launcher
