#include "runtime/base/control_group.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool lists(const std::string& names, std::string_view name) {
  std::istringstream words(names);
  for (std::string word; std::getline(words, word, ',');)
    if (word == name) return true;
  return false;
}

struct Mount {
  fs::path top;     // the group that is mounted
  fs::path folder;  // the mount point
};

// The mount points of a hierarchy of groups: the single hierarchy of version 2, or the hierarchy of
// version 1 that has the controller. A line of mountinfo reads
//   36 31 0:33 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
// The usual mount point is added last, because a sandbox may list other mounts than it has.
std::vector<Mount> find_mounts(int version, std::string_view controller, const fs::path& root) {
  std::vector<Mount> mounts;
  std::ifstream lines(root / "proc/self/mountinfo");
  for (std::string line; std::getline(lines, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line), after(line.substr(dash + 3));
    std::string skipped, top, folder, type, options;
    before >> skipped >> skipped >> skipped >> top >> folder;
    after >> type >> skipped >> options;
    if (version == 2 ? type == "cgroup2" : type == "cgroup" && lists(options, controller))
      mounts.push_back({top, root / fs::path(folder).relative_path()});
  }
  fs::path usual = root / "sys/fs/cgroup";
  if (version == 1) usual /= controller;
  const auto is_usual = [&](const Mount& mount) { return mount.folder == usual; };
  if (std::none_of(mounts.begin(), mounts.end(), is_usual)) mounts.push_back({"/", usual});
  return mounts;
}

// The path of a group relative to the group that is mounted. A container may see its path on the
// host although only its own group is mounted; then the whole path is used.
fs::path below(const fs::path& top, const fs::path& group) {
  const fs::path path = group.lexically_relative(top);
  if (path.empty() || *path.begin() == "..") return group.relative_path();
  return path == "." ? fs::path() : path;
}

}  // namespace

std::vector<ControlGroup> control_groups(std::string_view controller,
                                         const fs::path& root,
                                         const std::string& process) {
  std::vector<ControlGroup> groups;
  std::ifstream lines(root / "proc" / process / "cgroup");
  for (std::string line; std::getline(lines, line);) {
    // "0::/path" in version 2, "4:cpu,cpuacct:/path" in version 1.
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    const int version = names.empty() ? 2 : 1;
    if (version == 1 && !lists(names, controller)) continue;
    for (const Mount& mount : find_mounts(version, controller, root)) {
      fs::path group = below(mount.top, line.substr(second + 1));
      for (; !group.empty(); group = group.parent_path())
        groups.push_back({mount.folder / group, version});
      groups.push_back({mount.folder, version});
    }
  }
  return groups;
}

}  // namespace lockstep
