#pragma once
// The process's standard streams, which its parent may have closed or made non-blocking.

#include <string>

namespace lockstep::launcher {

// Opens /dev/null on those of descriptors 0 to 2 that are closed: otherwise the next files would
// get these numbers, and output would be written into them. From now on, output to `stdout` waits
// for its reader even if the descriptor is non-blocking, and fails if it was closed.
void prepare_streams();

bool output_was_closed();

// Waits until all output is written. Returns the error if it cannot be, also because its reader is
// gone; otherwise empty.
std::string output_failure();

}  // namespace lockstep::launcher
