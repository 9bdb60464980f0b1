#pragma once
// Threads of one rank. Work is split statically; results never depend on the number of threads.

#include <cstdint>
#include <type_traits>

namespace lockstep {

// Sets the number of threads that parallel_for uses (>= 1) and starts them. If they cannot be
// started, throws ConfigError and leaves one thread. Must not be called during a parallel loop.
void set_compute_threads(int threads);
int compute_threads();

// Call it in each iteration of a polling loop. Leaves the core's resources to its sibling thread.
inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

namespace detail {
void parallel_ranges(int64_t count,
                     int64_t grain,
                     void (*body)(void* context, int64_t begin, int64_t end),
                     void* context);
}

// Calls body(begin, end) on disjoint ranges that cover [0, count), on up to compute_threads()
// threads, and returns when all are done. Each range has about `grain` indices or more. Does not
// allocate. Only one loop may run at a time: do not call it from two threads at once or from inside
// body. body must not throw. The ranges depend on the number of threads, and any thread may run any
// range. So body must give each index the same result whatever range it is in.
template <typename Body>
void parallel_for(int64_t count, int64_t grain, Body&& body) {
  if (compute_threads() == 1 || count <= grain) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
  detail::parallel_ranges(
      count,
      grain,
      [](void* context, int64_t begin, int64_t end) {
        (*static_cast<std::remove_reference_t<Body>*>(context))(begin, end);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace lockstep
