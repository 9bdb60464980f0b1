// Kernels with mistakes that go unnoticed on x86-64, or with blocks in one order, and that the
// stand-in must find: a block that reads what another one writes, host memory, addresses that are
// not aligned.

#include "tests/fibers/cuda_on_host.h"
// What kernels need comes first.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "runtime/cuda/dynamic_shared.h"
#include "runtime/cuda/fragments.h"
#include "runtime/cuda/kernel_tools.h"
#include "tests/fibers/kernel_memory.h"
#include "tests/reference/sanitizers.h"

namespace lockstep::cuda {
namespace {

using fibers::Order;

constexpr unsigned kBlocks = 7;

// The mistake: nothing says that block i - 1 runs first.
__global__ void count_up_kernel(int* out) {
  out[blockIdx.x] = blockIdx.x == 0 ? 1 : out[blockIdx.x - 1] + 1;
}

__global__ void count_blocks_kernel(int* out) {
  ++out[(blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x];
}

std::vector<int> count_up() {
  std::vector<int> out(kBlocks);
  launch({{kBlocks}, {1}, nullptr}, count_up_kernel, out.data());
  return out;
}

TEST(StandInKernels, ABlockThatReadsWhatAnotherWritesIsFound) {
  std::set<std::vector<int>> results;
  for (const Order order : {Order::kForward, Order::kReverse, Order::kShuffled}) {
    fibers::order = order;
    results.insert(count_up());
  }
  fibers::order = Order::kEach;
  EXPECT_GE(results.size(), 2u);
  results.clear();
  constexpr int kLaunches = 16;
  for (int i = 0; i < kLaunches; ++i) results.insert(count_up());
  EXPECT_GE(results.size(), 3u) << "launches take each order";
}

TEST(StandInKernels, InEachOrderEachBlockComesOnce) {
  for (const Order order : {Order::kForward, Order::kReverse, Order::kShuffled}) {
    fibers::order = order;
    for (unsigned across = 1; across <= 9; ++across) {
      for (const dim3 grid :
           {dim3{across}, dim3{across, 2, 3}, dim3{1, across}, dim3{2, 5, across}}) {
        std::vector<int> counts(grid.x * grid.y * grid.z);
        launch({grid, {1}, nullptr}, count_blocks_kernel, counts.data());
        EXPECT_EQ(counts, std::vector<int>(counts.size(), 1));
      }
    }
  }
  fibers::order = Order::kEach;
}

struct Numbers {
  const int* at;
};

struct Written {
  int* at;
};

__global__ void copy_kernel(const int* from, int* to) { *to = *from; }
__global__ void copy_behind_kernel(const Numbers* from, int* to) { *to = *from->at; }
__global__ void copy_given_kernel(Numbers from, int* to) { *to = *from.at; }
__global__ void copy_to_given_kernel(const int* from, Written to) { *to.at = *from; }
// What a kernel may use besides its arrays: its arguments, variables of its own, shared memory, and
// what other lanes give it.
__global__ void copy_through_kernel(const int* from, int* to) {
  __shared__ int shared[kWarp];
  int own[2] = {};
  own[threadIdx.x % 2] = from[0];
  shared[threadIdx.x] = own[threadIdx.x % 2];
  __syncthreads();
  auto* const sized = reinterpret_cast<int*>(dynamic_shared());
  sized[threadIdx.x] = shared[kWarp - 1 - threadIdx.x];
  __syncthreads();
  to[threadIdx.x] = __shfl_xor_sync(kAllLanes, sized[threadIdx.x], 1);
}
// Reads and writes word `at` of the memory whose size the launch gives.
__global__ void shared_word_kernel(int at, uint32_t* found) {
  auto* const words = reinterpret_cast<uint32_t*>(dynamic_shared());
  found[blockIdx.x] = words[at];
  words[at] = 0;
}
__global__ void matrix_kernel(int off, uint32_t* found) {
  uint32_t words[4];
  load_matrices<false>(dynamic_shared() + off, words);
  found[threadIdx.x] = words[0];
}

class StandInMemoryDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test::sanitized()) GTEST_SKIP() << "sanitizers have checks of their own";
#ifndef LOCKSTEP_WATCHED_KERNELS
    GTEST_SKIP() << "this compiler puts no calls before accesses";
#endif
  }
  // The process that runs a kernel watches it, and so does none after it.
  template <typename Kernel, typename... Arguments>
  static void run(Kernel kernel, Arguments... arguments) {
    fibers::watch_kernels();
    launch({{1}, {1}, nullptr}, kernel, arguments...);
  }
  static int* device_memory() { return reinterpret_cast<int*>(fibers::take_memory(4096)); }
};

constexpr char kNeither[] = "neither device nor pinned memory";

TEST_F(StandInMemoryDeathTest, AKernelThatReadsHostMemoryIsFound) {
  int* const out = device_memory();
  std::vector<int> heap = {5};
  int stack = 5;
  static int kept = 5;
  EXPECT_DEATH(run(copy_kernel, heap.data(), out), "copy_kernel.*launched at .*gets a pointer");
  EXPECT_DEATH(run(copy_kernel, &stack, out), kNeither);
  EXPECT_DEATH(run(copy_kernel, &kept, out), kNeither);
  EXPECT_DEATH(run(copy_given_kernel, Numbers{&stack}, out),
               "copy_given_kernel.*launched at .*reads memory");
  const Numbers behind = {out};
  EXPECT_DEATH(run(copy_behind_kernel, &behind, out), kNeither);
  EXPECT_DEATH(run(copy_given_kernel, Numbers{heap.data()}, out), kNeither);
  EXPECT_DEATH(run(copy_kernel, static_cast<const int*>(nullptr), out), kNeither);
}

TEST_F(StandInMemoryDeathTest, AKernelThatWritesHostMemoryIsFound) {
  std::vector<int> heap = {5};
  EXPECT_DEATH(run(copy_kernel, device_memory(), heap.data()), "copy_kernel.*gets a pointer");
  EXPECT_DEATH(run(copy_to_given_kernel, device_memory(), Written{heap.data()}),
               "copy_to_given_kernel.*writes memory");
}

TEST_F(StandInMemoryDeathTest, MemoryThatWasFreedIsGone) {
  int* const memory = device_memory();
  fibers::give_memory_back(reinterpret_cast<std::byte*>(memory), 4096);
  EXPECT_NE(device_memory(), memory);
  EXPECT_DEATH(run(copy_kernel, memory, memory), "copy_kernel.*memory that was freed");
}

TEST_F(StandInMemoryDeathTest, ThePagePastAnArrayIsNotAnothers) {
  int* const memory = device_memory();
  EXPECT_DEATH(run(copy_kernel, memory, memory + 1024), "copy_kernel.*lies past an array");
}

TEST_F(StandInMemoryDeathTest, WhatAGpuReachesIsAllowed) {
  int* const from = device_memory();
  int* const to = device_memory();
  from[0] = 7;
  const auto all = [&] {
    fibers::watch_kernels();
    launch({{1}, {kWarp}, nullptr, kWarp * sizeof(int)}, copy_through_kernel, from, to);
    launch({{1}, {1}, nullptr}, copy_given_kernel, Numbers{from}, to + kWarp);
    std::exit(to[0] == 7 && to[kWarp] == 7 ? 0 : 1);
  };
  EXPECT_EXIT(all(), ::testing::ExitedWithCode(0), "");
}

// It ends within 16 bytes of what the launch gives, and each block finds NaNs in it.
TEST_F(StandInMemoryDeathTest, SharedMemoryOfALaunchHasItsSize) {
  auto* const found = reinterpret_cast<uint32_t*>(device_memory());
  const auto start = [&](size_t bytes, int at) {
    launch({{2}, {1}, nullptr, bytes}, shared_word_kernel, at, found);
  };
  start(64, 15);
  EXPECT_EQ(found[0], 0xffffffffu);
  EXPECT_EQ(found[1], 0xffffffffu) << "a block finds what another one left";
  start(kMaxSharedBytes, 0);
  EXPECT_DEATH((fibers::watch_kernels(), start(64, 16)), "shared_word_kernel.*past an array");
  EXPECT_DEATH(start(kMaxSharedBytes + 1, 0), "not every GPU has 101377 bytes of shared memory");
  EXPECT_DEATH(launch({{1}, {kWarp}, nullptr, 64}, matrix_kernel, 8, found),
               "does not begin at 16 bytes");
}

TEST_F(StandInMemoryDeathTest, ALibraryThatGetsHostMemoryIsFound) {
  std::vector<int> heap = {5};
  const auto call = [](const void* array) {
    fibers::watch_kernels();
    fibers::check_arrays("cublasLtMatmul", {nullptr, array});
    std::exit(0);
  };
  EXPECT_DEATH(call(heap.data()), "cublasLtMatmul gets an array at .*neither device nor pinned");
  EXPECT_EXIT(call(device_memory()), ::testing::ExitedWithCode(0), "");
}

template <typename T>
__global__ void load_kernel(const T* from, T* to) {
  *to = *from;
}

// The address of a T in `bytes`, `off` bytes away from where it would be aligned.
template <typename T>
void load_off(int off) {
  alignas(16) std::byte bytes[64] = {};
  T to{};
  launch({{1}, {1}, nullptr}, load_kernel<T>, reinterpret_cast<const T*>(bytes + off), &to);
}

TEST(StandInAlignmentDeathTest, AMisalignedLoadIsFound) {
  load_off<int>(4);
  load_off<double>(8);
  load_off<Vector<float, 4>>(16);
  EXPECT_DEATH(load_off<int>(2), "misaligned address");
  EXPECT_DEATH(load_off<int>(1), "misaligned address");
  EXPECT_DEATH(load_off<double>(4), "misaligned address");
  EXPECT_DEATH((load_off<Vector<float, 2>>(4)), "misaligned address");
  EXPECT_DEATH((load_off<Vector<float, 4>>(8)), "misaligned address");
  EXPECT_DEATH(load_off<uint16_t>(1), "misaligned address");
}

}  // namespace
}  // namespace lockstep::cuda
