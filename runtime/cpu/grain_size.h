#pragma once
// How much work is worth starting a thread.

#include <algorithm>
#include <cstdint>

namespace lockstep::cpu {

// Minimum number of elements per thread: some ten microseconds of a memory-bound kernel. Waking a
// sleeping thread costs the waker 4 to 11 us, and the thread starts after 20 to 30 us; a spinning
// thread starts within 0.3 us (two vCPUs of a Zen, medians).
inline constexpr int64_t kGrainElements = 16384;

// The same for products, in multiply-adds.
inline constexpr int64_t kGrainMultiplyAdds = int64_t{1} << 19;

// The same in rows of `columns` elements.
inline int64_t grain_rows(int64_t columns) {
  return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, columns));
}

// How many of `threads` threads are worth using for `multiply_adds` multiply-adds, at least one.
constexpr int64_t threads_worth(int64_t threads, int64_t multiply_adds) {
  return std::clamp<int64_t>(multiply_adds / kGrainMultiplyAdds, 1, threads);
}

}  // namespace lockstep::cpu
