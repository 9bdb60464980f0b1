#pragma once
// The process's standard streams, which whoever started it may have closed.

namespace lockstep {

// Opens /dev/null on those of descriptors 0 to 2 that are closed: else the next files would get
// these numbers, and what is printed would be written into them.
void open_missing_streams();

// Whether the standard output is a pipe whose reader has gone.
bool nobody_reads_output();

}  // namespace lockstep
