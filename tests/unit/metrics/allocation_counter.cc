// Replaces the global operator new by one that counts.

#include <cstdlib>
#include <new>

#include "tests/unit/metrics/metrics_fixture.h"

namespace {
thread_local uint64_t g_allocations = 0;

// Null where there is no memory.
void* counted_or_null(std::size_t bytes) noexcept {
  ++g_allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void* counted(std::size_t bytes) {
  if (void* memory = counted_or_null(bytes)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
// What std::stable_sort asks for.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted_or_null(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted_or_null(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace lockstep::metrics {
uint64_t allocations() { return g_allocations; }
}  // namespace lockstep::metrics
