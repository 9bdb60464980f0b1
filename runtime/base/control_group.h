#pragma once
// The control groups (cgroups) that a process is in, of version 1 and 2.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct ControlGroup {
  std::filesystem::path folder;  // its files, such as cpu.max
  int version;                   // 1 or 2
};

// The groups that may limit what `controller` ("cpu", "memory") gives the process, by its number or
// "self": its own and those above it, innermost first, as far as they are mounted. Files are read
// under `root`, which is another folder only in tests.
std::vector<ControlGroup> control_groups(std::string_view controller,
                                         const std::filesystem::path& root = "/",
                                         const std::string& process = "self");

}  // namespace lockstep
