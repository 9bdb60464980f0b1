#pragma once
// CUDA's language for the host's compiler: included by force before a kernel file of runtime/cuda,
// so that its kernels run on the CPU, block by block, each thread of a block a fiber. Barriers and
// shuffles are rendezvous; the order in which fibers run can be changed, which brings out missing
// barriers. What the emulation does not know (streams, atomics, PTX) does not compile.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>

#include "tests/fibers/order.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)

struct CUstream_st;

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

// Of the fiber that runs.
inline dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace lockstep::fibers {

// Runs `thread` for each thread of each block. A barrier or a shuffle that some threads never reach
// ends the process with a message.
void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread);

// Queues `work`, or records it where the stream is being captured: see host_stream.h.
void enqueue(CUstream_st* stream, std::function<void()> work);
// Of host_stream.h: finds what has gone wrong before, as a launch by nvcc does.
inline std::function<void(const std::source_location& where)> after_launch;

// Waits until every thread of the block that has not ended waits here too.
void wait_for_block();

// Gives the 64 bits of `lane`'s value to this thread, once all lanes in `mask` have come here.
uint64_t exchange(unsigned mask, uint64_t value, unsigned lane);

// Number of this thread within its warp.
unsigned lane();

template <typename T>
T shuffle(unsigned mask, T value, unsigned from) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = exchange(mask, bits, from);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace lockstep::fibers

inline void __syncthreads() { lockstep::fibers::wait_for_block(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { lockstep::fibers::exchange(mask, 0, 0); }

template <typename T>
T __shfl_sync(unsigned mask, T value, int from) {
  return lockstep::fibers::shuffle(mask, value, static_cast<unsigned>(from) % 32);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance) {
  return lockstep::fibers::shuffle(
      mask, value, lockstep::fibers::lane() ^ static_cast<unsigned>(distance));
}

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
