#include "launcher/commands/results.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>

#include "collectives/agreement.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace lockstep {

void check_result_path(const char* flag, const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  std::error_code code;
  // What is there is replaced: a device of the machine must not be.
  const bool other =
      std::filesystem::exists(path, code) && !std::filesystem::is_regular_file(path, code);
  if (other || !std::filesystem::is_directory(folder, code) || ::access(folder.c_str(), W_OK) != 0)
    throw ConfigError(
        "{}: cannot write '{}'; allowed: an ordinary file in an existing folder", flag, path);
}

void write_result(Session& session, const std::string& path, const Json& result) {
  if (path.empty()) return;
  run_on_root(session.communicator(),
              [&] { write_file_atomically(path, result.dump({.indent = 2}) + "\n"); });
}

std::optional<int64_t> count_bad_records(const RunParts& parts) {
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
