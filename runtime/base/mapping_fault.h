#pragma once
// Handles SIGBUS, which the kernel sends to a thread that touches a mapped page that the file no
// longer has: somebody truncated the file, or its disk failed or is full. If the process needs the
// file, it ends with one line that names the file and with the exit code given by whoever mapped
// it. Otherwise it continues without the file.

#include <cstddef>
#include <string>

#include "runtime/base/error.h"

namespace lockstep {

struct WatchedMapping;

// From now on SIGBUS in [data, data + bytes), the map of `path`, prints a line to stderr and ends
// the process with `code`. SIGBUS elsewhere is handled as before. Callable from any thread. Pass
// the result to unwatch_mapping() before the memory is unmapped.
WatchedMapping* watch_mapping(const void* data,
                              size_t bytes,
                              const std::string& path,
                              ExitCode code);
// From now on SIGBUS in the range puts an empty private page there, which other processes do not
// see.
WatchedMapping* shield_mapping(const void* data, size_t bytes);
void unwatch_mapping(WatchedMapping* mapping);

}  // namespace lockstep
