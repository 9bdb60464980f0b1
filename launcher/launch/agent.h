#pragma once
// The process that `launch` runs on each host. It starts that host's ranks, passes signals to them,
// and passes their output and exit codes back.

#include <string>

namespace lockstep::launch {

// Communicates over standard input and output until its ranks have ended; then returns 0. It kills
// the ranks and returns 1 if the input ends before, which means that `launch` has ended, or if
// nothing arrives for the order's silence_s, which means that `launch` is unreachable. It does not
// wait for ranks that SIGKILL does not end. The ranks end with this process, however that ends.
//
// `given_up` lists processes of earlier starts on this host, in the format of process_state.h's
// to_text(). The first message reports those that still exist.
int run_agent(const std::string& given_up);

}  // namespace lockstep::launch
