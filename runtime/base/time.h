#pragma once

#include <chrono>

namespace lockstep {

// Milliseconds since some fixed moment; monotonic.
inline double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace lockstep
