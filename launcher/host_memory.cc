#include "launcher/host_memory.h"

#include <algorithm>
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

size_t number_in(const char* path) {
  std::ifstream file(path);
  size_t value = kUnknown;
  return file >> value ? value : kUnknown;  // "max" is no number
}

// Control groups, version 2 or 1, as a container sees its own.
size_t group_available() {
  for (const auto& [limit_path, usage_path] :
       {std::pair("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        std::pair("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                  "/sys/fs/cgroup/memory/memory.usage_in_bytes")}) {
    const size_t limit = number_in(limit_path), usage = number_in(usage_path);
    if (limit != kUnknown && usage != kUnknown) return limit > usage ? limit - usage : 0;
  }
  return kUnknown;
}

}  // namespace

size_t available_memory_bytes() { return std::min(kernel_available(), group_available()); }

}  // namespace lockstep
