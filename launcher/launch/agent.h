#pragma once
// What `launch` runs on each host: it starts that host's ranks, passes signals to them, and what
// they write and how they end back.

namespace lockstep::launch {

// Speaks over the standard input and output until its ranks have ended; then returns 0. Where the
// input ends before, which means that `launch` has ended or is out of reach, it kills the ranks and
// returns 1. The ranks end with this process, however that ends.
int run_agent();

}  // namespace lockstep::launch
