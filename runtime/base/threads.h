#pragma once
// Threads of one rank. Work is split statically; results never depend on how many threads run it.

#include <cstdint>
#include <type_traits>

namespace lockstep {

// Sets the number of threads that parallel_for uses (>= 1), and starts them. Throws ConfigError if
// they cannot be started; then there is one. Not during a parallel loop.
void set_compute_threads(int threads);
int compute_threads();

// What a loop that polls does in between: leaves the core's resources to its sibling.
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
// threads, each range about `grain` long or more; returns when all are done. Does not allocate. One
// loop at a time: not from two threads at once, nor from within body. body must not throw. Ranges
// depend on the number of threads, and which thread runs a range is open, so body must give each
// index the same result whatever range it is in.
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
