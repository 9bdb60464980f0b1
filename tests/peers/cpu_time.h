#pragma once
// What the programs here that time kernels on the CPU share.

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lockstep::peers {

// Seconds that this thread has had its CPU.
inline double cpu_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// The same numbers in [-0.5, 0.5) each time.
inline std::vector<float> random_floats(int64_t count) {
  std::vector<float> values(count);
  uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
  }
  return values;
}

}  // namespace lockstep::peers
