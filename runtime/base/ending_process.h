#pragma once
// Detects processes of this host that have received SIGKILL but that the kernel still keeps.

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

// The fields of the file stat in a process's or thread's folder of /proc, from the third one, the
// state, on; none if it cannot be read.
std::vector<std::string> stat_fields(const std::filesystem::path& folder);

// Whether the process exists but runs no more of its own code, because each of its threads has
// received SIGKILL or is exiting. It may still hold locks for as long as the kernel keeps it, for
// example while a file system hangs. `proc` differs from /proc only in tests.
bool is_ending(pid_t process, const std::filesystem::path& proc = "/proc");

}  // namespace lockstep
