#pragma once
// What kernels on the host may touch. Device memory, pinned memory and the stacks of the kernels'
// threads lie in one range of addresses that holds nothing else, so one comparison tells whether an
// access is one that a GPU could make. Addresses are never given out twice: an access to memory
// that was freed faults.

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace lockstep::fibers {

// Readable and writable memory, in whole pages.
std::byte* take_memory(size_t bytes);
void give_memory_back(std::byte* memory, size_t bytes);

// From here on kernels may touch nothing else. Before, the tests of single kernels give them
// ordinary arrays.
void watch_kernels();

// The addresses that kernels may touch: all of them until watch_kernels().
struct Reach {
  uintptr_t begin = 0, bytes = UINTPTR_MAX;
  bool has(uintptr_t address) const { return address - begin < bytes; }
};
[[gnu::visibility("hidden")]] inline Reach reach;

// Whether the caller runs on the stack of a kernel's thread, if kernels are watched.
inline bool on_kernel_stack() {
  return reach.has(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)));
}

// Ends the program if a library's call gets an array that a GPU cannot reach. Null is no array.
void check_arrays(const char* call, std::initializer_list<const void*> arrays);

}  // namespace lockstep::fibers
