#pragma once
// The memory that holds slices, and copies within it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace lockstep::collectives {

// Implemented by the backend that owns the memory. A device may only queue the work: it runs in the
// order of the calls, and its results can be read after synchronize().
class SliceMemory {
 public:
  virtual ~SliceMemory() = default;
  // Host memory must stay unchanged until the copy is done.
  virtual void copy(const std::byte* from, std::byte* to, size_t bytes) = 0;
  virtual void fill_zeros(float* out, int64_t n) = 0;
  // Returns once everything queued so far is done.
  virtual void synchronize() = 0;
  // Memory that host and device can both access, aligned to 64 bytes. The device owns it until it
  // is destroyed.
  virtual std::byte* allocate_host(size_t bytes) = 0;
  // An array of n values in such memory.
  template <typename T>
  std::span<T> host_array(size_t n) {
    T* values = reinterpret_cast<T*>(allocate_host(n * sizeof(T)));
    std::uninitialized_value_construct_n(values, n);
    return {values, n};
  }
};

}  // namespace lockstep::collectives
