// Replaces the global operator new by one that counts.

#include <cstdlib>
#include <new>

#include "tests/unit/metrics/metrics_fixture.h"

namespace {
thread_local uint64_t g_allocations = 0;

void* counted(std::size_t bytes) {
  ++g_allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace lockstep {
uint64_t allocations() { return g_allocations; }
}  // namespace lockstep
