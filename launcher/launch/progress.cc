#include "launcher/launch/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>

#include "runtime/base/file.h"
#include "runtime/base/flight_reader.h"
#include "runtime/base/json.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/state.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

// The record of a rank of this start; nothing where it has none, or an earlier start's is there.
std::unique_ptr<FlightReader> record_of(const fs::path& run_dir, const RankEnd& end) {
  auto reader = FlightReader::open(flight_path(run_dir / "flight", end.rank));
  if (reader == nullptr || reader->now().process != end.process) return nullptr;
  return reader;
}

std::optional<fs::file_time_type> time_of(const fs::path& path) {
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(path, error);
  return error ? std::nullopt : std::optional(time);
}

double seconds_since(fs::file_time_type time) {
  return std::chrono::duration<double>(fs::file_time_type::clock::now() - time).count();
}

// The number after `name` in a line of metrics.jsonl; nothing where it is not there.
std::optional<double> number_in(const std::string& line, std::string_view name) {
  const size_t at = line.find(fmt::format("\"{}\":", name));
  if (at == std::string::npos) return std::nullopt;
  const char* text = line.data() + at + name.size() + 3;
  while (*text == ' ') ++text;
  double number = 0;
  const auto result = std::from_chars(text, line.data() + line.size(), number);
  return result.ec == std::errc() ? std::optional(number) : std::nullopt;
}

fs::path next_folder(const fs::path& starts) {
  for (int number = 1;; ++number) {
    const fs::path folder = starts / fmt::format("{:04}", number);
    if (!fs::exists(folder)) return folder;
  }
}

}  // namespace

Progress::Progress(fs::path run_dir) : run_dir_(std::move(run_dir)) {}

void Progress::begin_start() {
  kept_step_ = kept_step();
  end_time_ = time_of(run_dir_ / "end.json");
}

std::optional<RunEnd> Progress::end() const {
  const auto now = time_of(run_dir_ / "end.json");
  if (!now || now == end_time_) return std::nullopt;
  return read_run_end(run_dir_);
}

int64_t Progress::kept_step() const {
  const auto newest = find_latest(run_dir_ / "checkpoints");
  return newest ? newest->step : 0;
}

std::vector<std::string> Progress::last_words(const StartEnd& end) const {
  std::vector<std::string> words;
  for (const RankEnd& rank : end.ranks) {
    if (rank.code == 0) continue;
    const auto record = record_of(run_dir_, rank);
    words.push_back(text_of(rank) + (record ? "; it was at " + text_of(record->now()) : ""));
  }
  return words;
}

Lost Progress::lost(const StartEnd& end) const {
  int64_t reached = 0, begin_ns = 0;
  for (const RankEnd& rank : end.ranks) {
    const auto record = record_of(run_dir_, rank);
    if (!record) continue;
    const FlightMoment moment = record->now();
    reached = std::max(reached, moment.step);
    begin_ns = std::max(begin_ns, moment.begin_ns);
  }
  const auto newest = find_latest(run_dir_ / "checkpoints");
  const int64_t kept = newest ? newest->step : 0;
  if (reached <= kept) return {};
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  double seconds = now.count() - static_cast<double>(begin_ns) * 1e-9;
  const auto saved = newest ? time_of(newest->path / kStateFile) : std::nullopt;
  if (saved) seconds = std::min(seconds, seconds_since(*saved));
  return {reached - kept, std::max(0.0, seconds)};
}

fs::path Progress::keep_post_mortem(const StartEnd& end,
                                    const Lost& lost,
                                    const std::string& said) const {
  const fs::path folder = next_folder(run_dir_ / "starts");
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw IoError("create folder", folder, error.value());
  const bool recorded = std::any_of(end.ranks.begin(), end.ranks.end(), [&](const RankEnd& rank) {
    return record_of(run_dir_, rank) != nullptr;
  });
  if (recorded) fs::rename(run_dir_ / "flight", folder / "flight", error);
  if (error) throw IoError("move", run_dir_ / "flight", error.value());
  Json ranks = Json::array();
  for (const RankEnd& rank : end.ranks)
    ranks.push_back(Json::object({{"rank", rank.rank},
                                  {"host", rank.host},
                                  {"process", rank.process},
                                  {"code", rank.code ? Json(*rank.code) : Json()}}));
  const Json json = Json::object({{"ranks", ranks},
                                  {"trouble", end.trouble},
                                  {"steps_lost", lost.steps},
                                  {"seconds_lost", lost.seconds}});
  write_file_atomically(folder / "start.json",
                        json.dump({.indent = 2, .replace_invalid = true}) + "\n");
  write_file_atomically(folder / "said.txt", said);
  return folder;
}

double Progress::seconds_of_steps_after(int64_t step) const {
  std::ifstream file(run_dir_ / "metrics.jsonl");
  double sum_ms = 0;
  for (std::string line; std::getline(file, line);) {
    const auto number = number_in(line, "step"), ms = number_in(line, "step_ms");
    if (number && ms && *number > static_cast<double>(step)) sum_ms += *ms;
  }
  return sum_ms / 1000;
}

}  // namespace lockstep::launch
