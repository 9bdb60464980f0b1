#include "runtime/base/log.h"

#include <fcntl.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/streams.h"
#include "runtime/base/text.h"

namespace lockstep {
namespace {

constexpr double kLineStallMs = 500;
constexpr double kFileStallMs = 3000, kFileLimitMs = 20'000;

// A line is written if its index is at least the index of the log's level.
constexpr std::array kLevels = {"trace", "debug", "info", "warn", "error", "off"};
struct LineLevel {
  size_t index;  // in kLevels
  const char* in_file;
  const char* colour;
};

constexpr LineLevel kDebugLine{1, "debug", "\x1b[36m"}, kInfoLine{2, "info", "\x1b[32m"},
    kWarnLine{3, "warning", "\x1b[33m\x1b[1m"};

const LineLevel& line_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return kDebugLine;
    case LogLevel::kInfo: return kInfoLine;
    case LogLevel::kWarn: break;
  }
  return kWarnLine;
}

struct LogFile {
  std::string path;
  int descriptor;  // never closed
  OutputQueue queue;
};

size_t log_level = kInfoLine.index;
std::string& prefix = *new std::string;  // never destroyed: threads may log to the very end
bool coloured = false;
std::atomic<bool> waits_for_lines = true;
std::atomic<LogFile*> log_file = nullptr;  // never destroyed
std::atomic<LogSink> sink = nullptr;

bool shows_colours(int descriptor) {
  const char* kind = std::getenv("TERM");
  return ::isatty(descriptor) == 1 && kind != nullptr && std::strcmp(kind, "dumb") != 0;
}

// "2026-11-28T17:19:28.123"
std::string local_time() {
  timeval now{};
  ::gettimeofday(&now, nullptr);
  std::tm fields{};
  ::localtime_r(&now.tv_sec, &fields);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &fields);
  return fmt::format("{}.{:03}", text.data(), now.tv_usec / 1000);
}

void write_to_file(const LineLevel& level, const std::string& text) {
  LogFile* const file = log_file;
  if (file == nullptr) return;
  file->queue.add(file->descriptor, fmt::format("{} {} {}\n", local_time(), level.in_file, text));
}

void write_to_stream(const LineLevel& level, const std::string& text) {
  if (level.index < log_level) return;
  print_log(coloured ? fmt::format("{}{}{}\x1b[m\n", level.colour, prefix, text)
                     : fmt::format("{}{}\n", prefix, text));
  // Once nobody reads the stream, later lines are not waited for.
  if (waits_for_lines && !standard_error().flush(kLineStallMs, kLineStallMs))
    waits_for_lines = false;
}

}  // namespace

void init_log(const std::string& level, int rank, int /*ranks*/) {
  const auto* const found = std::find(kLevels.begin(), kLevels.end(), level);
  if (found == kLevels.end())
    throw ConfigError(
        "--log-level: '{}' is not a level; allowed: trace, debug, info, warn, error, off", level);
  log_level = static_cast<size_t>(found - kLevels.begin());
  if (rank > 0) log_level = std::max(log_level, kWarnLine.index);
  prefix = rank > 0 ? fmt::format("[rank {}] ", rank) : "";
  coloured = shows_colours(STDERR_FILENO);
}

void log_in_background() { waits_for_lines = false; }

void add_log_file(const std::string& path) {
  const int descriptor = open_to_write(path, O_WRONLY | O_CREAT | O_APPEND);
  const auto warn = [path](int error) {
    write_to_stream(kWarnLine,
                    fmt::format("cannot write '{}': {}; its lines are kept in memory until it can "
                                "be written",
                                path,
                                std::strerror(error)));
  };
  log_file = new LogFile{path, descriptor, OutputQueue({.on_failure = warn})};
}

void log_record(const std::string& text) {
  write_to_file(kInfoLine, escape_controls_in_lines(text));
}

void end_log() {
  flush_streams();
  LogFile* const file = log_file;
  if (file == nullptr) return;
  {
    static std::mutex& mutex = *new std::mutex;
    static std::string& reported = *new std::string;
    const std::lock_guard lock(mutex);
    const std::string loss = lost_log_lines();
    if (loss != reported) log_record("standard error stream: " + (reported = loss));
  }
  if (file->queue.flush(kFileStallMs, kFileLimitMs)) return;
  const uint64_t lost = file->queue.dropped().lines + file->queue.waiting().lines;
  static std::atomic<uint64_t> reported_lines = 0;
  if (reported_lines.exchange(lost) == lost) return;
  const int error = file->queue.error();
  write_to_stream(kWarnLine,
                  fmt::format("'{}': {} lines are lost: {}",
                              file->path,
                              lost,
                              error == 0 ? "its disk does not respond" : std::strerror(error)));
  flush_streams();
}

void log_text(LogLevel level, const std::string& text) {
  const LineLevel& line = line_level(level);
  if (line.index < log_level) return;
  const std::string escaped = escape_controls_in_lines(text);
  write_to_file(line, escaped);
  write_to_stream(line, escaped);
}

void set_log_sink(LogSink program) { sink = program; }

void log_line(LogLevel level, fmt::string_view format, fmt::format_args arguments) {
  const LogSink of_program = sink;
  if (of_program != nullptr) return of_program(level, fmt::vformat(format, arguments));
  if (line_level(level).index >= log_level) log_text(level, fmt::vformat(format, arguments));
}

}  // namespace lockstep
