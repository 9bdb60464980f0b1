#pragma once
// How kernels of ranges run on all threads.

#include <cstdint>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"

namespace lockstep::cpu {

// Calls kernel(arguments..., begin, end) for ranges that cover [0, count), as parallel_for() does.
template <typename Kernel, typename... Arguments>
void in_parallel(int64_t count, int64_t grain, Kernel kernel, const Arguments&... arguments) {
  parallel_for(count, grain, [&](int64_t begin, int64_t end) { kernel(arguments..., begin, end); });
}

}  // namespace lockstep::cpu
