#pragma once
// Logging. Rank 0 speaks on stderr; other ranks only warn and fail, with their rank in the line.

#include <fmt/core.h>

#include <string>

namespace lockstep {

// Sets up the log: level is one of trace, debug, info, warn, error, off.
// Throws ConfigError on another level.
void init_log(const std::string& level, int rank, int ranks);

// Adds a file sink (RUN_DIR/log.txt, appended to). Throws IoError.
void add_log_file(const std::string& path);

// Writes a line to that file alone, where there is one: what the user sees in another form.
void log_record(const std::string& text);

enum class LogLevel { kDebug, kInfo, kWarn };

// Formats and writes a line where the log has that level.
void log_line(LogLevel level, fmt::string_view format, fmt::format_args arguments);

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
