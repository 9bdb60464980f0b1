#include "launcher/ranks/host_memory.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "runtime/base/control_group.h"

namespace lockstep::launcher {
namespace {

constexpr size_t kUnknown = std::numeric_limits<size_t>::max();

size_t kernel_available(const std::filesystem::path& root) {
  std::ifstream file(root / "proc/meminfo");
  std::string key;
  size_t kib = 0;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  // Without /proc: free memory, which is less than what is available.
  struct sysinfo system {};
  if (::sysinfo(&system) != 0) return kUnknown;
  return (size_t{system.freeram} + system.bufferram) * system.mem_unit;
}

size_t number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  size_t value = kUnknown;
  return file >> value ? value : kUnknown;  // "max" is not a number
}

// The value of `key` in a file of "key value" lines; 0 if there is none.
size_t value_in(const std::filesystem::path& path, const std::string& key) {
  std::ifstream file(path);
  std::string name;
  size_t value = 0;
  while (file >> name >> value) {
    if (name == key) return value;
  }
  return 0;
}

size_t limit_of(const ControlGroup& group) {
  return number_in(group.folder / (group.version == 2 ? "memory.max" : "memory.limit_in_bytes"));
}

// What one control group leaves: its limit less its usage; the file cache does not count, as it can
// be reclaimed.
size_t left_in(const ControlGroup& group) {
  const bool v2 = group.version == 2;
  const size_t limit = limit_of(group);
  const size_t usage = number_in(group.folder / (v2 ? "memory.current" : "memory.usage_in_bytes"));
  if (limit == kUnknown || usage == kUnknown) return kUnknown;
  const size_t cache = std::min(usage, value_in(group.folder / "memory.stat", "inactive_file"));
  return limit > usage - cache ? limit - (usage - cache) : 0;
}

}  // namespace

size_t available_memory_bytes(const std::filesystem::path& root) {
  size_t available = kernel_available(root);
  for (const ControlGroup& group : control_groups("memory", root))
    available = std::min(available, left_in(group));
  return available;
}

size_t memory_limit_bytes(const std::filesystem::path& root) {
  size_t limit = kUnknown;
  for (const ControlGroup& group : control_groups("memory", root))
    limit = std::min(limit, limit_of(group));
  return limit;
}

}  // namespace lockstep::launcher
