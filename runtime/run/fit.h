#pragma once
// Whether a run fits into memory.

#include <string>

#include "runtime/run/prepared_run.h"

namespace lockstep::run {

// The memory that is available to a run.
struct MemoryLimits {
  size_t host_bytes = 0;    // of a host, for all of its ranks
  size_t device_bytes = 0;  // of a rank's device, if it has memory of its own
  std::string device;       // its name
  std::string host = "this host";
};

// Whether the plan has a snapshot for checkpoints and does not fit into the memory of a host.
bool lacks_memory_for_snapshot(const PreparedRun& prepared,
                               int local_ranks,
                               const MemoryLimits& limits);

// Whether the plan does not fit into the device's memory, but may if it adds fewer lanes at once.
bool lacks_memory_for_sums(const PreparedRun& prepared, const MemoryLimits& limits);

// Throws MemoryError if the plan does not fit; it names the first setting with the same batch that
// would fit, and the largest global batch.
void require_memory(const PreparedRun& prepared, int local_ranks, const MemoryLimits& limits);

}  // namespace lockstep::run
