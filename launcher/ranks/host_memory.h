#pragma once
// The memory that a run may use on this host.

#include <cstddef>

namespace lockstep::launcher {

// Bytes that processes of this host may still allocate: what the kernel reports as available or, if
// that is less, what the control group leaves.
size_t available_memory_bytes();

}  // namespace lockstep::launcher
