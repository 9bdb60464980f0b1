#pragma once
// The kernel's view of a process on this host that does not end.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launcher {

// A process that still exists after SIGKILL. Its start time, in ticks since the boot, distinguishes
// it from a later process with the same id.
struct GivenUp {
  pid_t process = 0;
  uint64_t start_ticks = 0;
  bool operator==(const GivenUp&) const = default;
};

// The process with this id as it is now; start_ticks is 0 if there is none.
GivenUp given_up_now(pid_t process, const std::filesystem::path& proc = "/proc");

// Whether it still exists; a zombie does not count.
bool is_there(const GivenUp& process, const std::filesystem::path& proc = "/proc");

// "state D (uninterruptible sleep), waiting in nfs_wait_bit_killable", for the thread that keeps it
// from ending. If it is frozen: "state D (...), frozen by the control group /sys/fs/cgroup/...".
// Only tests use another `root`.
std::string state_text(pid_t process, const std::filesystem::path& root = "/");

// The CPU ticks that the process has used so far; nullopt unless one of its threads is in state D.
std::optional<uint64_t> ticks_if_blocked(pid_t process,
                                         const std::filesystem::path& proc = "/proc");

// Formats and parses "4711:9155,4712:9156"; invalid words are skipped.
std::string to_text(const std::vector<GivenUp>& processes);
std::vector<GivenUp> given_up_from(const std::string& text);

}  // namespace lockstep::launcher
