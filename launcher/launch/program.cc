#include "launcher/launch/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <system_error>
#include <vector>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/host.h"
#include "runtime/base/json.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSelf = "/proc/self/exe";
constexpr const char* kProgram = "program";
constexpr const char* kUnknown = "unreadable";  // in place of a checksum; not another build

std::optional<std::string> checksum_of_file(const fs::path& path) {
  const Descriptor file(uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  if (file.fd < 0) return std::nullopt;
  Checksum checksum;
  std::vector<char> buffer(size_t{1} << 20);
  while (true) {
    const ssize_t bytes =
        uninterrupted([&] { return ::read(file.fd, buffer.data(), buffer.size()); });
    if (bytes < 0) return std::nullopt;
    if (bytes == 0) return to_hex(checksum.value());
    checksum.update(buffer.data(), static_cast<size_t>(bytes));
  }
}

// The libraries of a build or an installed folder; see launcher/cuda/load.cc and launcher/bundle/.
std::vector<fs::path> libraries_of(const fs::path& program) {
  std::vector<fs::path> found;
  for (const fs::path& folder :
       {program.parent_path(), program.parent_path() / "../lib/lockstep"}) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      const bool ours = name.starts_with("liblockstep") || folder.filename() == "lockstep";
      if (ours && name.starts_with("lib") && name.find(".so") != std::string::npos)
        found.push_back(entry->path());
    }
  }
  std::ranges::sort(found);
  return found;
}

std::string build_of(const fs::path& program, const fs::path& path) {
  Json build = Json::object({{kProgram, checksum_of_file(program).value_or(kUnknown)}});
  for (const fs::path& library : libraries_of(path))
    build[library.filename().string()] = Json(checksum_of_file(library).value_or(kUnknown));
  return build.dump({.replace_invalid = true});
}

}  // namespace

std::string program_to_start() {
  std::string path = program_path().string();
  if (path.ends_with(" (deleted)"))
    throw ConfigError(
        "launch: the program '{}' was deleted or replaced since it was started; start launch again",
        path.substr(0, path.rfind(" (deleted)")));
  return path;
}

std::string running_build() { return build_of(kSelf, program_path()); }

std::string build_at(const fs::path& program) { return build_of(program, program); }

std::string difference_of_builds(const std::string& before, const std::string& now) {
  if (before == now) return "";
  if (now.empty()) return "the program is from another build";
  const Json old = Json::parse(before), other = Json::parse(now);
  const auto words_for = [](const std::string& name) {
    return name == kProgram ? "the program" : name;
  };
  for (const std::string& name : old.names()) {
    if (!other.contains(name)) return words_for(name) + " is missing";
    const bool known = !(old[name] == Json(kUnknown)) && !(other[name] == Json(kUnknown));
    if (known && !(old[name] == other[name])) return words_for(name) + " is from another build";
  }
  for (const std::string& name : other.names())
    if (!old.contains(name)) return words_for(name) + " is new";
  return "";
}

}  // namespace lockstep::launch
