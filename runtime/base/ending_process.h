#pragma once
// Processes of this host that have got SIGKILL, and that the kernel still keeps.

#include <sys/types.h>

#include <filesystem>

namespace lockstep {

// Whether the process is there but runs none of its own code any more: each of its threads has got
// SIGKILL, or is ending. It may hold locks for as long as the kernel keeps it, for example if a file system
// hangs. proc: another folder only in tests.
bool is_ending(pid_t process, const std::filesystem::path& proc = "/proc");

}  // namespace lockstep
