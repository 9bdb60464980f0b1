#include "runtime/train/folder/run_end.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <system_error>
#include <thread>

#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/passing_error.h"
#include "runtime/base/time.h"
#include "runtime/metrics/environment.h"
#include "runtime/train/folder/run_generation.h"

namespace lockstep::train {
namespace {

constexpr const char* kFile = "end.json";
constexpr size_t kMaxBytes = 65536;
// Whoever started the run must learn that it is done, so a disk that is full is given some seconds.
constexpr double kPatienceMs = 30'000;
constexpr std::chrono::milliseconds kPause{500};
// Indexed by RunEnd::Reason.
constexpr std::array<const char*, 4> kReasons = {
    "last step", "max steps", "early stopping", "preempted"};

const char* name_of(RunEnd::Reason reason) { return kReasons.at(static_cast<size_t>(reason)); }

std::optional<RunEnd::Reason> reason_of(const std::string& name) {
  const auto found = std::find(kReasons.begin(), kReasons.end(), name);
  if (found == kReasons.end()) return std::nullopt;
  return static_cast<RunEnd::Reason>(found - kReasons.begin());
}

}  // namespace

std::string text_of(const RunEnd& end) {
  const auto why = [&] {
    switch (end.reason) {
      case RunEnd::Reason::kLastStep: return "";
      case RunEnd::Reason::kMaxSteps: return ", as --max-steps said";
      case RunEnd::Reason::kEarlyStopping: return ", stopped early";
      case RunEnd::Reason::kPreempted: return ", stopped on request";
    }
    return "";
  };
  const auto counted = [](int64_t count, const char* one, const char* many) {
    return count == 0 ? "" : fmt::format(", {} {}", count, count == 1 ? one : many);
  };
  return fmt::format("{}: step {} of {}{}, weights_hash {}{}{}",
                     end.done() ? "done" : "not done",
                     end.step,
                     end.steps,
                     why(),
                     end.weights_hash,
                     counted(end.skipped_steps, "step skipped", "steps skipped"),
                     counted(end.bad_records, "bad record", "bad records"));
}

void write_run_end(const std::filesystem::path& run_dir, const RunEnd& end) {
  Json json = Json::object({{"ended", name_of(end.reason)},
                            {"step", end.step},
                            {"steps", end.steps},
                            {"weights_hash", end.weights_hash},
                            {"start_time", metrics::start_time_utc()},
                            {"end_time", metrics::utc_now()}});
  if (end.reason == RunEnd::Reason::kPreempted) json["signalled"] = Json(end.signalled);
  if (end.skipped_steps > 0) json["skipped_steps"] = end.skipped_steps;
  if (end.bad_records > 0) json["bad_records"] = end.bad_records;
  if (end.peak_memory_bytes > 0) json["peak_memory_bytes"] = end.peak_memory_bytes;
  add_energy(json, end.energy);
  if (!end.forecast.is_null()) json["forecast"] = end.forecast;
  const std::string text = json.dump({.indent = 2}) + "\n";
  const double deadline_ms = now_ms() + kPatienceMs;
  while (true) {
    try {
      check_generation(run_dir);
      write_file_atomically(run_dir / kFile, text);
      return sync_folder(run_dir);
    } catch (const IoError& error) {
      if (!may_pass(error.error_number()) || now_ms() >= deadline_ms) throw;
      std::this_thread::sleep_for(kPause);
    }
  }
}

std::optional<RunEnd> read_run_end(const std::filesystem::path& run_dir) {
  try {
    const Json json = Json::parse(read_file(run_dir / kFile, kMaxBytes));
    const auto reason = reason_of(json.at("ended").get<std::string>());
    if (!reason) return std::nullopt;
    RunEnd end{*reason,
               json.at("step").get<int64_t>(),
               json.at("steps").get<int64_t>(),
               json.at("weights_hash").get<std::string>()};
    if (const Json* signalled = json.find("signalled"))
      for (const Json& rank : *signalled) end.signalled.push_back(rank.get<int>());
    for (const auto& [key, count] : {std::pair("skipped_steps", &end.skipped_steps),
                                     std::pair("bad_records", &end.bad_records)})
      if (const Json* found = json.find(key)) *count = found->get<int64_t>();
    return end;
  } catch (const IoError&) {
    return std::nullopt;
  } catch (const JsonError&) {
    return std::nullopt;
  }
}

void remove_run_end(const std::filesystem::path& run_dir) {
  check_generation(run_dir);
  std::error_code error;
  std::filesystem::remove(run_dir / kFile, error);
  if (error) throw IoError("remove", run_dir / kFile, error.value());
}

}  // namespace lockstep::train
