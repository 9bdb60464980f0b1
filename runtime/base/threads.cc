#include "runtime/base/threads.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace lockstep {
namespace {
int g_threads = 1;
}

void set_compute_threads(int threads) {
  LOCKSTEP_CHECK(threads >= 1);
  g_threads = threads;
}

int compute_threads() { return g_threads; }

int available_cpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return 1;
  return std::max(1, CPU_COUNT(&mask));
}

namespace detail {

void parallel_ranges(int64_t count, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context) {
  const int64_t most = (count + grain - 1) / grain;
  const int threads = static_cast<int>(std::min<int64_t>(g_threads, most));
#pragma omp parallel num_threads(threads)
  {
    // The runtime may give fewer threads than asked for: split by what there is.
    const int64_t team = omp_get_num_threads(), me = omp_get_thread_num();
    const int64_t begin = count * me / team, end = count * (me + 1) / team;
    if (begin < end) body(context, begin, end);
  }
}

}  // namespace detail
}  // namespace lockstep
