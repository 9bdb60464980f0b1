#pragma once
// What becomes of a process that uses a mapped file where the file has nothing any more: somebody
// cut it short, or its disk failed or is full. The kernel answers with SIGBUS, on whichever thread
// it is. If the process needs the file it ends with one line that names it, and the code of who
// mapped it; otherwise it goes on without the file.

#include <cstddef>
#include <string>

#include "runtime/base/error.h"

namespace lockstep {

struct WatchedMapping;

// From now on SIGBUS in [data, data + bytes), the map of `path`, writes a line to stderr and ends
// the process with `code`. Elsewhere it does what it did before. Callable from any thread. Give the
// result to unwatch_mapping() before the memory is unmapped.
WatchedMapping* watch_mapping(const void* data,
                              size_t bytes,
                              const std::string& path,
                              ExitCode code);
// From now on SIGBUS there puts an empty page of this process in its place, which others do not see.
WatchedMapping* shield_mapping(const void* data, size_t bytes);
void unwatch_mapping(WatchedMapping* mapping);

}  // namespace lockstep
