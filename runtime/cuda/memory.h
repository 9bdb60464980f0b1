#pragma once
// Memory of the GPU, allocated once, and pinned host memory.

#include <cstddef>
#include <vector>

#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// One allocation in device memory, handed out piece by piece.
class DeviceArena {
 public:
  DeviceArena() = default;
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;
  ~DeviceArena();

  // Allocates and zeroes `bytes`. May be called once. Throws MemoryError, which reports the free
  // memory.
  void reserve(size_t bytes, Stream stream);
  // Returns the next piece, aligned to 256 bytes. It is a bug to take more than was reserved.
  std::byte* take(size_t bytes, const char* what);
  size_t taken_bytes() const { return taken_; }

 private:
  std::byte* base_ = nullptr;
  size_t bytes_ = 0, taken_ = 0;
};

// Host memory that the GPU copies from and to asynchronously.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory();

  // Returns zeroed memory. Throws MemoryError, which names `what`.
  std::byte* allocate(size_t bytes, const char* what);

 private:
  std::vector<void*> pieces_;
};

}  // namespace lockstep::cuda
