#include "runtime/base/failure.h"

#include <cxxabi.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>
#include <stdexcept>
#include <system_error>
#include <typeinfo>

#include "runtime/base/json.h"

namespace lockstep {
namespace {

struct Free {
  void operator()(char* text) const { std::free(text); }
};

std::string type_of(const std::exception& error) {
  const char* const mangled = typeid(error).name();
  int status = 0;
  const std::unique_ptr<char, Free> name(abi::__cxa_demangle(mangled, nullptr, nullptr, &status));
  return name == nullptr ? mangled : name.get();
}

std::string message_of(const std::filesystem::filesystem_error& error) {
  const std::string reason = error.code().message();
  // Without a path, the error concerns the folder in which the program was started.
  if (error.path1().empty()) return fmt::format("cannot access the current folder: {}", reason);
  const std::string second =
      error.path2().empty() ? "" : fmt::format(" or '{}'", error.path2().string());
  return fmt::format("cannot access '{}'{}: {}", error.path1().string(), second, reason);
}

}  // namespace

Failure failure_of(const std::exception& error) {
  if (const auto* known = dynamic_cast<const Error*>(&error)) return {known->code(), known->what()};
  // A size that no memory can hold may also appear as a length_error of a container.
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const std::length_error*>(&error) != nullptr)
    return {ExitCode::kMemory, "out of memory"};
  if (const auto* path = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return {ExitCode::kCheckpoint, message_of(*path)};
  if (dynamic_cast<const JsonError*>(&error) != nullptr)
    return {ExitCode::kInternal, fmt::format("JSON was not as expected: {}", error.what())};
  if (const auto* refused = dynamic_cast<const std::system_error*>(&error))
    return {ExitCode::kInternal,
            fmt::format("a system call failed: {}", refused->code().message())};
  return {
      ExitCode::kInternal,
      fmt::format("internal error: unhandled exception of type {}; please report the command and "
                  "its input",
                  type_of(error))};
}

}  // namespace lockstep
