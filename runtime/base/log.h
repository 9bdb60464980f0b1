#pragma once
// Logging. Rank 0 speaks on stderr; other ranks only warn and fail, with their rank in the line.
// Lines go through queues (streams.h, output_queue.h): no stream and no disk holds the work up.

#include <fmt/core.h>

#include <string>

namespace lockstep {

// Sets up the log: level is one of trace, debug, info, warn, error, off. A line is written before the
// call that logs it returns, with patience, so that it comes before what the program does next.
// Throws ConfigError on another level.
void init_log(const std::string& level, int rank, int ranks);

// From now on lines are written when they can be: the work that begins does not wait for them.
void log_in_background();

// Adds a file (RUN_DIR/log.txt, appended to; no link is followed). While it cannot be written, as on
// a full disk, lines are kept, up to a limit, and one warning says so. Throws IoError.
void add_log_file(const std::string& path);

// Writes a line to that file alone, where there is one: what the user sees in another form.
void log_record(const std::string& text);

// Before the process ends, in whatever way: waits, with patience, until all lines are written, and
// reports what is lost, of the stream in the file and of the file on the stream.
void end_log();

enum class LogLevel { kDebug, kInfo, kWarn };

// Formats and writes a line where the log has that level.
void log_line(LogLevel level, fmt::string_view format, fmt::format_args arguments);
void log_text(LogLevel level, const std::string& text);

// A library that is loaded has a log of its own, as it has a copy of this code: from now on its lines
// go to `program`, the program's log_text().
using LogSink = void (*)(LogLevel level, const std::string& text);
void set_log_sink(LogSink program);

template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kDebug, format, fmt::make_format_args(args...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kInfo, format, fmt::make_format_args(args...));
}
template <typename... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kWarn, format, fmt::make_format_args(args...));
}

}  // namespace lockstep
