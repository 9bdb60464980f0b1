#pragma once
// The memory that a run may use on this host.

#include <cstddef>
#include <filesystem>

namespace lockstep::launcher {

// Bytes that processes of this host may still allocate: what the kernel reports as available or, if
// that is less, what the control group leaves.
// `root` differs from "/" only in tests.
size_t available_memory_bytes(const std::filesystem::path& root = "/");

// The smallest limit of the control groups; the largest number if none has one.
size_t memory_limit_bytes(const std::filesystem::path& root = "/");

}  // namespace lockstep::launcher
