#pragma once
// Errors. A recoverable error (bad input, a failed peer, a full disk) is an exception class whose
// message is written for the user and whose exit code is documented; a broken invariant ends the
// process at once with kInternal.

#include <fmt/core.h>

#include <stdexcept>
#include <string>

#include "runtime/base/check.h"

namespace lockstep {

// Process exit codes; part of the command-line interface.
enum class ExitCode : int {
  kOk = 0,
  kUsage = 2,       // command line or config
  kData = 3,        // data set missing, unreadable or malformed
  kCheckpoint = 4,  // checkpoint or run folder missing, corrupt or not writable
  kMemory = 5,      // does not fit in memory
  kPeer = 6,        // a peer or the network failed
  kNumeric = 7,     // NaN, Inf or diverged replicas
  kInternal = 70,   // a broken invariant of Lockstep itself
  kPreempted = 75,  // checkpoint written on request: start the run again
};

// Base class of all recoverable errors. what() is one line that names the field or file, its value
// and the allowed values.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Error(ExitCode code, fmt::string_view format, fmt::format_args arguments);
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// One class per exit code, constructed from a fmt format string and its arguments.
template <ExitCode kCode>
class CodedError : public Error {
 public:
  template <typename... Args>
  explicit CodedError(fmt::format_string<Args...> format, Args&&... args)
      : Error(kCode, format, fmt::make_format_args(args...)) {}
};

using ConfigError = CodedError<ExitCode::kUsage>;
using DataError = CodedError<ExitCode::kData>;
using CheckpointError = CodedError<ExitCode::kCheckpoint>;
using MemoryError = CodedError<ExitCode::kMemory>;
using CommError = CodedError<ExitCode::kPeer>;
using NumericError = CodedError<ExitCode::kNumeric>;

// A system call on a file failed. The message has the operation, the path and the text of
// strerror(). Callers that know the file's purpose rethrow it as DataError or CheckpointError. If
// nobody catches it, it counts as a failure of the run folder.
class IoError : public Error {
 public:
  // `remedy` follows the text of strerror(), after a semicolon, unless it is empty.
  IoError(const std::string& operation,
          const std::string& path,
          int error_number,
          const std::string& remedy = "");
  // For failures without a failed system call: `reason` replaces the text of strerror().
  IoError(const std::string& operation, const std::string& path, const std::string& reason);
  int error_number() const { return error_number_; }

 private:
  int error_number_ = 0;
};

// Like invariant_failed() of check.h, with a message.
[[noreturn, gnu::cold]] void invariant_failed_saying(const char* expression,
                                                     const char* file,
                                                     int line,
                                                     fmt::string_view format,
                                                     fmt::format_args arguments);

template <typename... Args>
[[noreturn, gnu::cold]] void invariant_failed(const char* expression,
                                              const char* file,
                                              int line,
                                              fmt::format_string<Args...> format,
                                              Args&&... args) {
  invariant_failed_saying(expression, file, line, format, fmt::make_format_args(args...));
}

}  // namespace lockstep

// Checks an invariant of Lockstep itself, never user input. The arguments after the condition are
// an optional fmt format string and its values.
#define LOCKSTEP_CHECK(condition, ...)                                                         \
  do {                                                                                         \
    if (!(condition)) [[unlikely]]                                                             \
      ::lockstep::invariant_failed(#condition, __FILE__, __LINE__ __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)
