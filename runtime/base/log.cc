#include "runtime/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep {
namespace {
std::shared_ptr<spdlog::logger> file_logger;

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarn: return spdlog::level::warn;
  }
  return spdlog::level::off;
}

}  // namespace

void init_log(const std::string& level, int rank, int ranks) {
  const auto parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off")
    throw ConfigError(
        "--log-level: '{}' is not a level; allowed: trace, debug, info, warn, error, off", level);
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>("lockstep", sink);
  logger->set_level(rank == 0 ? parsed : std::max(parsed, spdlog::level::warn));
  const std::string who = ranks > 1 ? fmt::format(" [rank {}]", rank) : "";
  logger->set_pattern(rank == 0 ? "%^%v%$" : "%^" + who.substr(1) + " %v%$");
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);
}

void add_log_file(const std::string& path) {
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path, false);
    sink->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    spdlog::default_logger()->sinks().push_back(sink);
    file_logger = std::make_shared<spdlog::logger>("file", sink);
    file_logger->flush_on(spdlog::level::info);
  } catch (const spdlog::spdlog_ex&) {
    throw IoError("open", path, errno);
  }
}

void log_record(const std::string& text) {
  if (file_logger) file_logger->info(escape_controls_in_lines(text));
}

void log_line(LogLevel level, fmt::string_view format, fmt::format_args arguments) {
  spdlog::logger& logger = *spdlog::default_logger_raw();
  if (!logger.should_log(level_of(level))) return;
  logger.log(level_of(level), escape_controls_in_lines(fmt::vformat(format, arguments)));
}

}  // namespace lockstep
