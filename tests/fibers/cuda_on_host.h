#pragma once
// CUDA's language for the host's compiler: included by force before a kernel file of runtime/cuda,
// so that its kernels run on the CPU, block by block, each thread of a block a fiber. Barriers and
// shuffles are rendezvous; the order of blocks and of a block's fibers changes from launch to
// launch, which brings out missing barriers, and blocks that read what others write. What the
// emulation does not know (streams, atomics, PTX) does not compile.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <type_traits>

#include "tests/fibers/order.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)

struct CUstream_st;

namespace lockstep::fibers {

// Queues `work`, or records it where the stream is being captured: see host_stream.h.
void enqueue(CUstream_st* stream, std::function<void()> work);
// Of host_stream.h: finds what has gone wrong before, as a launch by nvcc does.
inline std::function<void(const std::source_location& where)> after_launch;

}  // namespace lockstep::fibers

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// All of it is of the library that holds the kernels: there it is found without a detour.
#pragma GCC visibility push(hidden)

// Of the fiber that runs.
inline dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace lockstep::fibers {

// A kernel and where it is launched, for messages.
struct Launched {
  const void* kernel = nullptr;
  std::source_location where;
};
inline Launched launched;  // the one that runs

// Runs thread(closure) for each thread of each block. A barrier or a shuffle that some threads
// never reach ends the process with a message.
void run_grid(const Launched& what,
              dim3 grid,
              dim3 block,
              void (*thread)(const void* closure),
              const void* closure);
// Whether a kernel's thread runs.
bool in_kernel();

// Ends the program if an argument is a pointer to memory that no GPU can reach. What lies behind
// pointers is checked when it is used.
void check_pointer(const Launched& what, const void* argument);
template <typename T>
void check_argument(const Launched& what, const T& argument) {
  if constexpr (std::is_convertible_v<T, const void*>) check_pointer(what, argument);
}

// For a function that hands a kernel its arguments, which the host keeps: its own accesses are not
// those of a kernel.
#define LOCKSTEP_HANDS_ARGUMENTS __attribute__((no_sanitize_address))

template <typename Thread>
void run_grid(const Launched& what, dim3 grid, dim3 block, const Thread& thread) {
  const auto call = [](const void* closure)
                        LOCKSTEP_HANDS_ARGUMENTS { (*static_cast<const Thread*>(closure))(); };
  run_grid(what, grid, block, call, &thread);
}

// Waits until every thread of the block that has not ended waits here too.
void wait_for_block();

// What a lane gives the others at once: as much as its part of two matrices.
struct LaneValue {
  uint64_t words[3];
};
// The values of the warp's 32 lanes, once all lanes in `mask` have come here. They stay until this
// lane comes to the exchange after the next one.
const LaneValue* exchange(unsigned mask, const LaneValue& value);

// Number of this thread within its warp.
unsigned lane();

template <typename T>
T shuffle(unsigned mask, T value, unsigned from) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  LaneValue bits{};
  std::memcpy(bits.words, &value, sizeof(T));
  std::memcpy(&value, exchange(mask, bits)[from % 32].words, sizeof(T));
  return value;
}

// Shared memory whose size the launch gives: that of the block that runs, filled with NaNs when the
// block begins, and that of the next launch. All GPUs with tensor cores for BF16 have so much.
inline constexpr size_t kMaxDynamicShared = 99 * 1024;
inline std::byte* dynamic_shared = nullptr;
inline size_t dynamic_shared_bytes = 0;

// The instructions of fragments.h, of which it says what they do: tensor_cores.cc.
enum class Factors { kBFloat16, kFloat16, kTf32 };
void multiply_add(Factors type, float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void load_matrices(const void* row, bool transposed, uint32_t (&words)[4]);

}  // namespace lockstep::fibers

inline void __syncthreads() { lockstep::fibers::wait_for_block(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { lockstep::fibers::exchange(mask, {}); }

template <typename T>
T __shfl_sync(unsigned mask, T value, int from) {
  return lockstep::fibers::shuffle(mask, value, static_cast<unsigned>(from) % 32);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance) {
  return lockstep::fibers::shuffle(
      mask, value, lockstep::fibers::lane() ^ static_cast<unsigned>(distance));
}

inline unsigned __reduce_or_sync(unsigned mask, unsigned value) {
  const lockstep::fibers::LaneValue* const values = lockstep::fibers::exchange(mask, {{value}});
  for (int lane = 0; lane < 32; ++lane)
    if ((mask >> lane & 1) != 0) value |= static_cast<unsigned>(values[lane].words[0]);
  return value;
}

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }

#pragma GCC visibility pop
