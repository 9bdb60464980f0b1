#include "runtime/train/folder/run_end.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "runtime/base/file.h"
#include "runtime/base/json.h"

namespace lockstep {
namespace {

constexpr const char* kFile = "end.json";
constexpr size_t kMostBytes = 65536;
// By RunEnd::Reason.
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
  return fmt::format("{}: step {} of {}{}, weights_hash {}",
                     end.done() ? "done" : "not done",
                     end.step,
                     end.steps,
                     why(),
                     end.weights_hash);
}

void write_run_end(const std::filesystem::path& run_dir, const RunEnd& end) {
  const Json json = Json::object({{"ended", name_of(end.reason)},
                                  {"step", end.step},
                                  {"steps", end.steps},
                                  {"weights_hash", end.weights_hash}});
  write_file_atomically(run_dir / kFile, json.dump({.indent = 2}) + "\n");
  sync_folder(run_dir);
}

std::optional<RunEnd> read_run_end(const std::filesystem::path& run_dir) {
  try {
    const Json json = Json::parse(read_file(run_dir / kFile, kMostBytes));
    const auto reason = reason_of(json.at("ended").get<std::string>());
    if (!reason) return std::nullopt;
    return RunEnd{*reason,
                  json.at("step").get<int64_t>(),
                  json.at("steps").get<int64_t>(),
                  json.at("weights_hash").get<std::string>()};
  } catch (const IoError&) {
    return std::nullopt;
  } catch (const JsonError&) {
    return std::nullopt;
  }
}

void remove_run_end(const std::filesystem::path& run_dir) {
  std::error_code error;
  std::filesystem::remove(run_dir / kFile, error);
  if (error) throw IoError("remove", run_dir / kFile, error.value());
}

}  // namespace lockstep
