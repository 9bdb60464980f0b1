#pragma once
// The clock that all timings use.

#include <cstdint>
#include <ctime>
#include <limits>

namespace lockstep {

// Milliseconds since a fixed moment; monotonic.
inline double now_ms() {
  timespec time;
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec) / 1e6;
}

// A limit in seconds: 0 means no limit.
inline double seconds_or_never(double seconds) {
  return seconds > 0 ? seconds : std::numeric_limits<double>::infinity();
}

// When this process began, apart from the time to load it.
inline const double process_begin_ms = now_ms();

}  // namespace lockstep
