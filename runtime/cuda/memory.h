#pragma once
// Memory of the GPU, taken once, and pinned memory of the host.

#include <cstddef>
#include <vector>

#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// One allocation on the GPU, handed out piece by piece.
class DeviceArena {
 public:
  DeviceArena() = default;
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;
  ~DeviceArena();

  // Takes and zeroes `bytes`. Once. Throws MemoryError that says how much is free.
  void reserve(size_t bytes, Stream stream);
  // The next piece, aligned to 256 bytes. More than was reserved is a broken invariant.
  std::byte* take(size_t bytes, const char* what);
  size_t taken_bytes() const { return taken_; }

 private:
  std::byte* base_ = nullptr;
  size_t bytes_ = 0, taken_ = 0;
};

// Host memory that the GPU copies from and to without waiting.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory();

  // Zeroed. Throws MemoryError, which names `what`.
  std::byte* allocate(size_t bytes, const char* what);

 private:
  std::vector<void*> pieces_;
};

}  // namespace lockstep::cuda
