#include "tests/fibers/kernel_memory.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace lockstep::fibers {
namespace {

constexpr size_t kPage = 4096, kRangeBytes = size_t{1} << 40;

size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void* map(void* at, size_t bytes, int protection, int flags) {
  void* const memory = ::mmap(at, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (memory != MAP_FAILED) return memory;
  std::perror("memory of the stand-in for CUDA");
  std::abort();
}

std::byte* range() {
  static auto* const begin =
      static_cast<std::byte*>(map(nullptr, kRangeBytes, PROT_NONE, MAP_NORESERVE));
  return begin;
}

std::mutex mutex;
size_t taken = 0;

}  // namespace

std::byte* take_memory(size_t bytes) {
  const std::lock_guard lock(mutex);
  std::byte* const memory = range() + taken;
  taken += whole_pages(bytes) + kPage;  // a page between them that nobody may touch
  if (taken > kRangeBytes) std::abort();
  map(memory, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_FIXED | MAP_NORESERVE);
  return memory;
}

void give_memory_back(std::byte* memory, size_t bytes) {
  map(memory, whole_pages(bytes), PROT_NONE, MAP_FIXED | MAP_NORESERVE);
}

void watch_kernels() { reach = {reinterpret_cast<uintptr_t>(range()), kRangeBytes}; }

void check_arrays(const char* call, std::initializer_list<const void*> arrays) {
  for (const void* array : arrays) {
    if (array == nullptr || reach.has(reinterpret_cast<uintptr_t>(array))) continue;
    std::fprintf(
        stderr, "%s gets an array at %p, which is neither device nor pinned memory\n", call, array);
    std::abort();
  }
}

}  // namespace lockstep::fibers
