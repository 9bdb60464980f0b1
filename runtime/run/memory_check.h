#pragma once
// Whether a run fits into memory.

#include <string>

#include "runtime/run/assembly.h"

namespace lockstep {

// Memory that a run can have.
struct MemoryLimits {
  size_t host_bytes = 0;    // of a host, for all of its ranks
  size_t device_bytes = 0;  // of a rank's device, where it has memory of its own
  std::string device;       // its name
  std::string host = "this host";
};

// Whether the plan has a snapshot for checkpoints for which a host has too little memory.
bool lacks_memory_for_snapshot(const Assembly& assembly,
                               int local_ranks,
                               const MemoryLimits& limits);

// Refuses a plan that does not fit, naming the largest global batch that would. Throws MemoryError.
void check_memory(const Assembly& assembly, int local_ranks, const MemoryLimits& limits);

}  // namespace lockstep
