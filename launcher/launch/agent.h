#pragma once
// What `launch` runs on each host: it starts that host's ranks, passes signals to them, and what
// they write and how they end back.

#include <string>

namespace lockstep::launch {

// Speaks over the standard input and output until its ranks have ended; then returns 0. If the input
// ends before, which means that `launch` has ended, or nothing comes for as long as the order says,
// which means that it is out of reach, it kills the ranks and returns 1. It does not wait for ranks
// that SIGKILL does not end. The ranks end with this process, however that ends.
//
// given_up: processes of earlier starts on this host, as to_text() of process_state.h writes them;
// those that are still there are named in the first message.
int run_agent(const std::string& given_up);

}  // namespace lockstep::launch
