#include "launcher/commands/results.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>

#include "collectives/agreement.h"
#include "launcher/standard_streams.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/streams.h"

namespace lockstep {
namespace {

constexpr const char* kStandardOutput = "-";
int json_output = -1;  // copy of the original standard output, once that is reserved for JSON

void keep_output_for_json() {
  if (json_output >= 0) return;
  std::fflush(stdout);
  if (output_was_closed()) throw IoError("write", "the standard output", EBADF);
  json_output = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (json_output < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
    throw IoError("copy", "the standard output", errno);
}

}  // namespace

void require_result_path(const char* flag, const std::string& path) {
  if (path.empty()) return;
  if (path == kStandardOutput && std::string_view(flag) == "--json") return keep_output_for_json();
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  // An existing file will be replaced; a device file must not be.
  try {
    check_replaceable(path);
  } catch (const IoError& error) {
    throw ConfigError(
        "{}: {}; allowed: an ordinary file in an existing folder", flag, error.what());
  }
  const bool other = is_there(path) && !is_file(path);
  if (other || !is_folder(folder) || ::access(folder.c_str(), W_OK) != 0)
    throw ConfigError(
        "{}: cannot write '{}'; allowed: an ordinary file in an existing folder", flag, path);
}

void write_json(const std::string& path, const Json& json, int indent) {
  if (path.empty()) return;
  const std::string text = json.dump({.indent = indent, .replace_invalid = true}) + "\n";
  if (path != kStandardOutput) return write_file_atomically(path, text);
  if (results_are_queued())
    return standard_output().add(json_output, text, OutputQueue::Kind::kResult);
  if (!write_patiently(json_output, text)) throw IoError("write", "the standard output", errno);
}

void write_result(Session& session, const std::string& path, const Json& result) {
  if (path.empty()) return;
  run_on_root(session.communicator(), [&] { write_json(path, result); });
}

std::optional<int64_t> count_bad_records(const RunContext& parts) {
  if (parts.config.data.bad_records == BadRecords::kFail) return std::nullopt;
  int64_t read = 0;
  for (const Dataset* dataset : {parts.data.train.get(), parts.data.eval.get()})
    if (dataset != nullptr) read += dataset->bad_records();
  return parts.data.summary.bad_records + sum_over_ranks(parts.communicator, read);
}

std::string words_for(const std::optional<int64_t>& bad_records) {
  const int64_t count = bad_records.value_or(0);
  if (count == 0) return "";
  return fmt::format(", {} bad record{}", count, count == 1 ? "" : "s");
}

std::string hash_text_of(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace lockstep
