#pragma once
// The clock by which everything here is timed.

#include <cstdint>
#include <ctime>
#include <limits>

namespace lockstep {

// Milliseconds since some fixed moment; monotonic.
inline double now_ms() {
  timespec time;
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec) / 1e6;
}

// A limit in seconds of which 0 says that there is none.
inline double seconds_or_never(double seconds) {
  return seconds > 0 ? seconds : std::numeric_limits<double>::infinity();
}

// When this process began, but for what it took to load.
inline const double process_begin_ms = now_ms();

}  // namespace lockstep
