#pragma once
// The control groups (cgroups, version 1 and 2) that a process belongs to.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct ControlGroup {
  std::filesystem::path folder;  // holds the group's files, such as cpu.max
  int version;                   // 1 or 2
};

// The groups that may limit the process's use of `controller` ("cpu", "memory"): its own group and
// that group's ancestors, innermost first, as far as they are mounted. `process` is a process id or
// "self". `root` differs from "/" only in tests.
std::vector<ControlGroup> control_groups(std::string_view controller,
                                         const std::filesystem::path& root = "/",
                                         const std::string& process = "self");

}  // namespace lockstep
