#pragma once
// The process's standard streams, which whoever started it may have closed or made non-blocking.

#include <string>

namespace lockstep {

// Opens /dev/null on those of descriptors 0 to 2 that are closed: else the next files would get
// these numbers, and what is printed would be written into them. From now on what is printed on
// `stdout` waits for its reader though the descriptor be non-blocking, and fails if it was closed.
void prepare_streams();

bool output_was_closed();

// Waits for what was printed on the standard output. Empty if all of it is written; otherwise the error,
// also if its reader has gone.
std::string output_failure();

}  // namespace lockstep
