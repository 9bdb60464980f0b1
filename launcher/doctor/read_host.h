#pragma once
// Reads facts of this host and process. `root` differs from "/" only in tests, which put files of
// /proc and /sys there; what the kernel reports by system calls is always this process's.

#include <filesystem>

#include "launcher/doctor/facts.h"
#include "launcher/ranks/session.h"

namespace lockstep::doctor {

CpuFacts read_cpus(const std::filesystem::path& root = "/");
MemoryFacts read_memory(const std::filesystem::path& root = "/");
LimitFacts read_limits(const std::filesystem::path& root = "/");
// `why_apart`: see StartFacts.
StartFacts read_start(const launcher::Session& session, const std::string& why_apart);

// Writes, syncs and renames a small file in the folder, which is made if it is missing, and then
// removed again. A folder that does not answer within `limit_s` is a failure.
DiskFacts read_disk(const std::filesystem::path& folder, double limit_s);

}  // namespace lockstep::doctor
