#pragma once
// How much memory a run may take on this host.

#include <cstddef>

namespace lockstep {

// Bytes that processes of this host may still take: what the kernel calls available, or what the
// control group leaves if that is less.
size_t available_memory_bytes();

}  // namespace lockstep
