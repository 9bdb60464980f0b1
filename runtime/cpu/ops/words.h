#pragma once
// Copies of elements: as floats those of four bytes, and as bfloat16 those of two, whatever their
// type.

#include <cstdint>
#include <cstring>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"

namespace lockstep::cpu {

template <typename T>
void copy_words(const T* from, int64_t n, T* to) {
  if (n < 16) {  // a call would take longer
    for (int64_t i = 0; i < n; ++i) to[i] = from[i];
  } else {
    std::memcpy(to, from, n * sizeof(T));
  }
}

// Sets n elements to zero, on all threads.
inline void clear_words(float* to, int64_t n) {
  parallel_for(n, kGrainElements, [&](int64_t begin, int64_t end) {
    std::memset(to + begin, 0, (end - begin) * sizeof(float));
  });
}

}  // namespace lockstep::cpu
