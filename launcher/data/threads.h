#pragma once
// Threads for commands that read many samples.

#include <cstdint>
#include <functional>

namespace lockstep::launcher {

// `threads`, or this process's number of CPUs if it is 0.
int choose_data_threads(int threads);

// Calls body(i) for each i in [begin, end) on `threads` threads, in any order. The first exception
// ends the other threads and is rethrown.
void for_each_in_threads(int64_t begin,
                         int64_t end,
                         int threads,
                         const std::function<void(int64_t)>& body);

}  // namespace lockstep::launcher
