#include "runtime/base/error.h"

#include <cstdlib>
#include <cstring>

#include "runtime/base/streams.h"

namespace lockstep {

Error::Error(ExitCode code, fmt::string_view format, fmt::format_args arguments)
    : Error(code, fmt::vformat(format, arguments)) {}

IoError::IoError(const std::string& operation,
                 const std::string& path,
                 int error_number,
                 const std::string& remedy)
    : IoError(operation,
              path,
              std::string(std::strerror(error_number)) + (remedy.empty() ? "" : "; " + remedy)) {
  error_number_ = error_number;
}

IoError::IoError(const std::string& operation, const std::string& path, const std::string& reason)
    : Error(ExitCode::kCheckpoint, fmt::format("cannot {} '{}': {}", operation, path, reason)) {}

void invariant_failed(const char* expression, const char* file, int line) {
  invariant_failed_saying(expression, file, line, "", {});
}

void invariant_failed_saying(const char* expression,
                             const char* file,
                             int line,
                             fmt::string_view format,
                             fmt::format_args arguments) {
  const std::string message = fmt::vformat(format, arguments);
  print_log(fmt::format("lockstep: internal error: {}{}({}) at {}:{}\n",
                        message,
                        message.empty() ? "" : " ",
                        expression,
                        file,
                        line));
  flush_streams();
  const char* want_core = std::getenv("LOCKSTEP_ABORT");
  if (want_core != nullptr && std::strcmp(want_core, "1") == 0) std::abort();
  std::_Exit(static_cast<int>(ExitCode::kInternal));
}

}  // namespace lockstep
