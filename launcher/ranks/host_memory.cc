#include "launcher/ranks/host_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace lockstep {
namespace {

constexpr size_t kUnknown = std::numeric_limits<size_t>::max();

size_t kernel_available() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  size_t kib = 0;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return kUnknown;
}

size_t number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  size_t value = kUnknown;
  return file >> value ? value : kUnknown;  // "max" is no number
}

// The value of `key` in a file of "key value" lines; 0 where there is none.
size_t value_in(const std::filesystem::path& path, const std::string& key) {
  std::ifstream file(path);
  std::string name;
  size_t value = 0;
  while (file >> name >> value) {
    if (name == key) return value;
  }
  return 0;
}

// What one control group leaves: its limit less what it uses, of which the cache of files can be
// had back.
size_t left_in(const std::filesystem::path& folder,
               const char* limit_file,
               const char* usage_file) {
  const size_t limit = number_in(folder / limit_file), usage = number_in(folder / usage_file);
  if (limit == kUnknown || usage == kUnknown) return kUnknown;
  const size_t cache = std::min(usage, value_in(folder / "memory.stat", "inactive_file"));
  return limit > usage - cache ? limit - (usage - cache) : 0;
}

// The least that this process's control group and those above it leave, in version 2 or 1.
size_t group_available() {
  std::ifstream groups("/proc/self/cgroup");
  size_t least = kUnknown;
  for (std::string line; std::getline(groups, line);) {
    // "0::/path", or in version 1 "4:memory:/path".
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const bool unified = second == first + 1;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    if (!unified && controllers.find(",memory,") == std::string::npos) continue;
    const std::filesystem::path root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    std::filesystem::path group = line.substr(second + 1);
    for (;;) {
      const std::filesystem::path folder = root / group.relative_path();
      least = std::min(least,
                       unified ? left_in(folder, "memory.max", "memory.current")
                               : left_in(folder, "memory.limit_in_bytes", "memory.usage_in_bytes"));
      if (!group.has_relative_path()) break;
      group = group.parent_path();
    }
  }
  return least;
}

}  // namespace

size_t available_memory_bytes() { return std::min(kernel_available(), group_available()); }

}  // namespace lockstep
