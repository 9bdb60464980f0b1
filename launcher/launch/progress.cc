#include "launcher/launch/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <limits>

#include "runtime/base/file.h"
#include "runtime/base/flight_reader.h"
#include "runtime/base/json.h"
#include "runtime/base/text.h"
#include "runtime/checkpoint/format/state.h"
#include "runtime/metrics/environment.h"
#include "runtime/train/folder/run_end.h"
#include "runtime/train/folder/writer_lock.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

// The flight record of a rank of this start; null if there is none, or it belongs to another start
// or run.
std::unique_ptr<FlightReader> record_of(const fs::path& run_dir, const RankEnd& end) {
  auto reader = FlightReader::copy(flight_path(run_dir / "flight", end.rank));
  if (reader == nullptr) return nullptr;
  const FlightMoment moment = reader->now();
  if (moment.process != end.process || !end.host.starts_with(moment.host)) return nullptr;
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

// The number after `name` in a line of metrics.jsonl; nullopt if there is none.
std::optional<double> number_in(const std::string& line, std::string_view name) {
  const size_t at = line.find(fmt::format("\"{}\":", name));
  if (at == std::string::npos) return std::nullopt;
  const char* text = line.data() + at + name.size() + 3;
  while (*text == ' ') ++text;
  double number = 0;
  const auto result = std::from_chars(text, line.data() + line.size(), number);
  return result.ec == std::errc() ? std::optional(number) : std::nullopt;
}

// The numbers of the folders in starts/, in ascending order. Throws IoError.
std::vector<int> numbers_in(const fs::path& starts) {
  std::vector<int> numbers;
  std::error_code error;
  for (fs::directory_iterator entry(starts, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (const auto number = parse_as<int>(name)) numbers.push_back(*number);
  }
  if (error) throw IoError("list", starts, error.value());
  std::ranges::sort(numbers);
  return numbers;
}

fs::path folder_of(const fs::path& starts, int number) {
  return starts / fmt::format("{:04}", number);
}

// Keeps the first starts, which show how the trouble began, and the newest ones.
void remove_old_starts(const fs::path& starts, const std::vector<int>& numbers) {
  constexpr size_t kFirst = 3, kNewest = 20;
  std::error_code ignored;  // then there is one more
  for (size_t i = kFirst; i + kNewest < numbers.size(); ++i)
    fs::remove_all(folder_of(starts, numbers[i]), ignored);
}

}  // namespace

Progress::Progress(fs::path run_dir) : run_dir_(std::move(run_dir)) {}

void Progress::begin_start() {
  begin_step_ = kept_step();
  begin_utc_ = metrics::utc_now();
  end_time_ = time_of(run_dir_ / "end.json");
  metrics_time_ = time_of(run_dir_ / "metrics.jsonl");
}

std::optional<checkpoint::CheckpointEntry> Progress::newest() const {
  try {
    newest_ = checkpoint::find_latest(run_dir_ / "checkpoints");
  } catch (const IoError&) {
    // A disk that does not answer: the checkpoint is still there.
  }
  return newest_;
}

int64_t Progress::kept_step() const {
  const auto entry = newest();
  return entry ? entry->step : 0;
}

bool Progress::is_ours(const StartEnd& end) const {
  return std::ranges::any_of(end.ranks, [&](const RankEnd& rank) {
    return rank.code == 0 || rank.code == static_cast<int>(ExitCode::kPreempted) ||
           record_of(run_dir_, rank) != nullptr;
  });
}

void Progress::complete(StartEnd& end) {
  if (!is_ours(end)) return;
  const fs::path end_file = run_dir_ / "end.json";
  if (time_of(end_file) && time_of(end_file) != end_time_) {
    const std::optional<train::RunEnd> run_end = train::read_run_end(run_dir_);
    end.done = run_end && run_end->done();
    if (run_end) end.signalled = run_end->signalled;
  }
  end.made_steps = made_steps(end);
  for (const RankEnd& rank : end.ranks) {
    const auto record = record_of(run_dir_, rank);
    const auto finding = record ? record->finding() : std::nullopt;
    if (finding && finding->rank >= 0) end.stuck_rank = finding->rank;
  }
}

// Reads the flight recorders or, on hosts that have none, metrics.jsonl.
bool Progress::made_steps(const StartEnd& end) const {
  if (has_progressed()) return true;
  for (const RankEnd& rank : end.ranks) {
    const auto record = record_of(run_dir_, rank);
    if (!record) continue;
    const FlightMoment moment = record->now();
    if (moment.first_step >= 0 && moment.step > moment.first_step) return true;
  }
  return time_of(run_dir_ / "metrics.jsonl") != metrics_time_ &&
         seconds_of_steps(begin_step_, std::numeric_limits<int64_t>::max()) > 0;
}

// Whether writer.lock is held by a process that is not a rank of this start.
bool Progress::has_another_writer(const StartEnd& end) const {
  const std::optional<train::WriterInfo> writer = train::writer_of(run_dir_);
  return writer && std::ranges::none_of(end.ranks, [&](const RankEnd& rank) {
           return writer->host == rank.host && writer->pid == std::to_string(rank.process);
         });
}

std::vector<std::string> Progress::failure_lines(const StartEnd& end) const {
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
  const auto newest = this->newest();
  const int64_t kept = newest ? newest->step : 0;
  if (reached <= kept) return {};
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  double seconds = now.count() - static_cast<double>(begin_ns) * 1e-9;
  const auto saved = newest ? time_of(newest->path / checkpoint::kStateFile) : std::nullopt;
  if (saved) seconds = std::min(seconds, seconds_since(*saved));
  return {reached - kept, std::max(0.0, seconds)};
}

fs::path Progress::keep_post_mortem(const StartEnd& end,
                                    const Lost& lost,
                                    const std::string& rank_errors) const {
  if (has_another_writer(end))
    throw IoError("write to", run_dir_ / "starts", "another run writes to this run folder");
  const fs::path starts = run_dir_ / "starts";
  std::error_code error;
  fs::create_directories(starts, error);
  std::vector<int> numbers = error ? std::vector<int>() : numbers_in(starts);
  numbers.push_back(numbers.empty() ? 1 : numbers.back() + 1);
  const fs::path folder = folder_of(starts, numbers.back());
  if (!error) fs::create_directory(folder, error);
  if (error) throw IoError("create folder", folder, error.value());
  remove_old_starts(starts, numbers);
  const bool recorded = std::ranges::any_of(
      end.ranks, [&](const RankEnd& rank) { return record_of(run_dir_, rank) != nullptr; });
  if (recorded) fs::rename(run_dir_ / "flight", folder / "flight", error);
  if (error) throw IoError("move", run_dir_ / "flight", error.value());
  Json ranks = Json::array();
  for (const RankEnd& rank : end.ranks)
    ranks.push_back(Json::object({{"rank", rank.rank},
                                  {"host", rank.host},
                                  {"process", rank.process},
                                  {"code", rank.code ? Json(*rank.code) : Json()}}));
  const Json json = Json::object({{"start_time", begin_utc_},
                                  {"end_time", metrics::utc_now()},
                                  {"ranks", ranks},
                                  {"trouble", end.trouble},
                                  {"steps_lost", lost.steps},
                                  {"seconds_lost", lost.seconds}});
  write_file_atomically(folder / "start.json",
                        json.dump({.indent = 2, .replace_invalid = true}) + "\n");
  write_file_atomically(folder / "said.txt", rank_errors);
  return folder;
}

double Progress::seconds_of_steps_after(int64_t step) const {
  return seconds_of_steps(step, kept_step());
}

double Progress::seconds_of_steps(int64_t after, int64_t last) const {
  if (!is_file(run_dir_ / "metrics.jsonl")) return 0;  // opening a pipe would block
  std::ifstream file(run_dir_ / "metrics.jsonl");
  double sum_ms = 0;
  for (std::string line; std::getline(file, line);) {
    const auto number = number_in(line, "step"), ms = number_in(line, "step_ms");
    if (number && ms && *number > static_cast<double>(after) &&
        *number <= static_cast<double>(last))
      sum_ms += *ms + number_in(line, "left_out_ms").value_or(0);
  }
  return sum_ms / 1000;
}

}  // namespace lockstep::launch
