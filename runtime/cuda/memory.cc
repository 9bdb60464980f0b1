#include "runtime/cuda/memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr size_t kAlignment = 256;
constexpr double kGiB = 1024.0 * 1024 * 1024;

}  // namespace

DeviceArena::~DeviceArena() {
  if (base_ != nullptr) cudaFree(base_);
}

void DeviceArena::reserve(size_t bytes, Stream stream) {
  LOCKSTEP_CHECK(base_ == nullptr, "reserve() may be called only once");
  void* base = nullptr;
  const cudaError_t error = cudaMalloc(&base, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error, so that the next check does not find it
    size_t free = 0, total = 0;
    LOCKSTEP_CUDA(cudaMemGetInfo(&free, &total));
    throw MemoryError(
        "the run needs {:.2f} GiB of the GPU's memory, of which {:.2f} of {:.2f} GiB are free; use "
        "a smaller train.global_batch or more lanes, execution.recompute BLOCKS, or a free GPU",
        static_cast<double>(bytes) / kGiB,
        static_cast<double>(free) / kGiB,
        static_cast<double>(total) / kGiB);
  }
  check(error, "cudaMalloc");
  base_ = static_cast<std::byte*>(base);
  bytes_ = bytes;
  LOCKSTEP_CUDA(cudaMemsetAsync(base_, 0, bytes, stream));
}

std::byte* DeviceArena::take(size_t bytes, const char* what) {
  const size_t length = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  LOCKSTEP_CHECK(taken_ + length <= bytes_, "{} exceeds the reserved memory", what);
  std::byte* const piece = base_ + taken_;
  taken_ += length;
  return piece;
}

PinnedMemory::~PinnedMemory() {
  for (void* piece : pieces_) cudaFreeHost(piece);
}

std::byte* PinnedMemory::allocate(size_t bytes, const char* what) {
  void* piece = nullptr;
  const cudaError_t error = cudaMallocHost(&piece, std::max<size_t>(bytes, 1));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw MemoryError(
        "cannot allocate {} bytes of pinned host memory for {}; check `ulimit -l`", bytes, what);
  }
  check(error, "cudaMallocHost");
  pieces_.push_back(piece);
  std::memset(piece, 0, bytes);
  return static_cast<std::byte*>(piece);
}

}  // namespace lockstep::cuda
