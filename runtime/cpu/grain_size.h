#pragma once
// How much work is worth a thread.

#include <algorithm>
#include <cstdint>

namespace lockstep::cpu {

// Elements that one thread should at least have: a few microseconds of a memory-bound kernel, which
// pays for waking it.
inline constexpr int64_t kGrainElements = 16384;

// The same in rows of `columns` elements.
inline int64_t grain_rows(int64_t columns) {
  return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, columns));
}

}  // namespace lockstep::cpu
