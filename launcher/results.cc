#include "launcher/results.h"

#include <fmt/format.h>
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
  if (std::filesystem::is_directory(path, code) || !std::filesystem::is_directory(folder, code) ||
      ::access(folder.c_str(), W_OK) != 0)
    throw ConfigError("{}: cannot write '{}'; allowed: a file in an existing folder", flag, path);
}

void write_result(Session& session, const std::string& path, const nlohmann::ordered_json& result) {
  if (path.empty()) return;
  run_on_root(session.communicator(), [&] { write_file_atomically(path, result.dump(2) + "\n"); });
}

std::string hash_text_of(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace lockstep
