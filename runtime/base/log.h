#pragma once
// Logging. Rank 0 logs to stderr; other ranks log only warnings and errors, with their rank in the
// line. Lines go through queues (streams.h, output_queue.h), so that no stream and no disk blocks
// the work.

#include <fmt/core.h>

#include <string>

namespace lockstep {

// Sets up the log. `level` is one of trace, debug, info, warn, error, off. At first a line is
// written before the call that logs it returns, as long as the stream accepts it, so that it
// precedes the program's later output. Throws ConfigError if the level is another one.
void init_log(const std::string& level, int rank, int ranks);

// From now on, logging never waits until a line is written.
void log_in_background();

// Adds a log file (RUN_DIR/log.txt, appended to; a link is not followed). While it cannot be
// written, for example because the disk is full, lines are kept up to a limit, and one warning
// reports it. Throws IoError.
void add_log_file(const std::string& path);

// Writes a line only to the log file, if there is one: for what the user sees in another form.
void log_record(const std::string& text);

// Call this before the process ends in any way. Waits, within limits, until all lines are written,
// and reports lost lines: those of the stream in the file, and those of the file on the stream.
void end_log();

enum class LogLevel { kDebug, kInfo, kWarn };

// Formats a line and writes it if the log's level admits it.
void log_line(LogLevel level, fmt::string_view format, fmt::format_args arguments);
void log_text(LogLevel level, const std::string& text);

// A shared library that is loaded at run time has its own copy of this code and so its own log.
// From now on its lines go to `program`, the log_text() of the program.
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
