#pragma once
// What the kernel says of a process of this host that does not end.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

// A process that has got SIGKILL and is still there. The time of its start, in ticks since the boot,
// tells it from a later one of the same number.
struct GivenUp {
  pid_t process = 0;
  uint64_t start_ticks = 0;
  bool operator==(const GivenUp&) const = default;
};

// Start 0: there is no such process.
GivenUp given_up_now(pid_t process, const std::filesystem::path& proc = "/proc");

// Whether it is there; one that has ended and that nobody has waited for is not.
bool is_there(const GivenUp& process, const std::filesystem::path& proc = "/proc");

// "state D (uninterruptible sleep), waiting in nfs_wait_bit_killable": of the thread that keeps it
// from ending. If it is frozen: "state D (...), frozen by the control group /sys/fs/cgroup/...".
// root: another folder only in tests.
std::string state_text(pid_t process, const std::filesystem::path& root = "/");

// Ticks of processor time that it has had so far; nothing unless one of its threads is in state D.
std::optional<uint64_t> ticks_if_blocked(pid_t process,
                                         const std::filesystem::path& proc = "/proc");

// "4711:9155,4712:9156", and back; what is no such word is left out.
std::string to_text(const std::vector<GivenUp>& processes);
std::vector<GivenUp> given_up_from(const std::string& text);

}  // namespace lockstep::launch
