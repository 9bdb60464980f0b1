#pragma once
// For memory that another rank of the node has just written.

#include <algorithm>
#include <cstddef>

namespace lockstep::collectives {

// Asks for the cache lines of a part that is about to be read, many trips to the other core at a
// time: a loop that reads them waits for a few at a time. Only for as many as a core's second cache
// takes along; for more, what the processor itself prefetches is as good.
inline void prefetch_written(const void* begin, size_t bytes) {
  constexpr size_t kLine = 64, kMaxBytes = 32 << 10;
  const auto* const from = static_cast<const std::byte*>(begin);
  for (size_t at = 0; at < std::min(bytes, kMaxBytes); at += kLine)
    __builtin_prefetch(from + at, /*rw=*/0, /*locality=*/2);
}

}  // namespace lockstep::collectives
