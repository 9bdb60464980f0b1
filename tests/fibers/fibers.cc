#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <vector>

#include "runtime/base/rng.h"
#include "tests/fibers/cuda_on_host.h"
#include "tests/fibers/order.h"

namespace lockstep::fibers {
namespace {

// Not a power of two, which would put the tops of all stacks into the same lines of the cache.
constexpr size_t kStackBytes = 64 * 1024 + 320;
constexpr unsigned kWarp = 32;

#if defined(__x86_64__)

// A suspended fiber is its stack pointer: the registers that a callee must preserve lie on top.
struct Context {
  void* stack_pointer = nullptr;
};

extern "C" void lockstep_switch_fiber(void** save, void* load);
asm(R"(
.text
.globl lockstep_switch_fiber
.type lockstep_switch_fiber, @function
lockstep_switch_fiber:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size lockstep_switch_fiber, .-lockstep_switch_fiber
)");

void prepare(Context& context, std::byte* stack, void (*entry)()) {
  auto* top = reinterpret_cast<void**>(stack + kStackBytes);
  // Popped: six registers, the address that ret goes to, and the return address of `entry`, which
  // never returns. With it the stack is aligned as after a call.
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  context.stack_pointer = top;
}

void switch_to(Context& from, Context& to) {
  lockstep_switch_fiber(&from.stack_pointer, to.stack_pointer);
}

#else

struct Context {
  ucontext_t context;
};

void prepare(Context& context, std::byte* stack, void (*entry)()) {
  getcontext(&context.context);
  context.context.uc_stack.ss_sp = stack;
  context.context.uc_stack.ss_size = kStackBytes;
  makecontext(&context.context, entry, 0);
}

void switch_to(Context& from, Context& to) { swapcontext(&from.context, &to.context); }

#endif

enum class State : uint8_t { kReady, kAtBarrier, kAtExchange, kEnded };

struct Fiber {
  Context context;
  dim3 thread;
  unsigned mask = 0;       // of the exchange that it waits in
  unsigned exchanges = 0;  // that it has come to
};

// The values that the lanes of a warp give each other. A lane can be one exchange ahead of another,
// so values of two exchanges are kept.
struct Warp {
  std::array<std::array<uint64_t, kWarp>, 2> values;
};

class Block {
 public:
  Block(dim3 size, const std::function<void()>& thread)
      : thread_(thread),
        fibers_(size.x * size.y * size.z),
        states_(fibers_.size()),
        warps_((fibers_.size() + 31) / 32) {
    stacks_ = stacks(fibers_.size());
    order_.resize(fibers_.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    if (order == Order::kReverse) std::reverse(order_.begin(), order_.end());
    for (size_t i = 0; i < fibers_.size(); ++i) {
      const auto number = static_cast<unsigned>(i);
      fibers_[i].thread = {number % size.x, number / size.x % size.y, number / (size.x * size.y)};
    }
  }

  void run();
  // Gives the processor to the next fiber of this round or, after the last, to run().
  void wait(State why) {
    Fiber& fiber = fibers_[current_];
    states_[current_] = why;
    switch_to(fiber.context, take_next() ? fibers_[current_].context : scheduler_);
  }
  uint64_t exchange(unsigned mask, uint64_t value, unsigned from);
  unsigned lane() const { return static_cast<unsigned>(current_ % kWarp); }

 private:
  // Memory for `count` stacks, kept from launch to launch: to clear it would take longer than most
  // kernels.
  static std::byte* stacks(size_t count) {
    static size_t kept = 0;
    static std::unique_ptr<std::byte[]> memory;
    if (count > kept) {
      memory = std::make_unique_for_overwrite<std::byte[]>(count * kStackBytes);
      kept = count;
    }
    return memory.get();
  }
  static void enter();
  bool take_next();
  void shuffle();
  bool release_warps();
  bool release_block();
  [[noreturn]] void report_deadlock() const;

  const std::function<void()>& thread_;
  std::vector<Fiber> fibers_;
  std::vector<State> states_;  // of the fibers; beside each other, as they are searched
  std::vector<Warp> warps_;
  std::vector<size_t> order_;
  std::byte* stacks_ = nullptr;
  Context scheduler_;
  size_t current_ = 0;
  size_t turn_ = 0;  // in order_, of the fiber that comes next
  uint64_t shuffles_ = 0;
};

Block* running = nullptr;

void Block::enter() {
  running->thread_();
  running->wait(State::kEnded);
}

// Makes the next fiber of this round that can go on the current one.
bool Block::take_next() {
  while (turn_ < order_.size()) {
    const size_t i = order_[turn_++];
    if (states_[i] != State::kReady) continue;
    current_ = i;
    threadIdx = fibers_[i].thread;
    return true;
  }
  return false;
}

void Block::run() {
  std::fill(states_.begin(), states_.end(), State::kReady);
  for (size_t i = 0; i < fibers_.size(); ++i)
    prepare(fibers_[i].context, stacks_ + i * kStackBytes, enter);
  running = this;
  for (;;) {
    if (order == Order::kShuffled) shuffle();
    turn_ = 0;
    if (take_next()) {
      switch_to(scheduler_, fibers_[current_].context);
      continue;
    }
    if (std::all_of(states_.begin(), states_.end(), [](State s) { return s == State::kEnded; }))
      break;
    if (!release_warps() && !release_block()) report_deadlock();
  }
  running = nullptr;
}

void Block::shuffle() {
  const RngStream stream{.seed = 7, .purpose = kRngSynthetic};
  for (size_t i = order_.size(); i > 1; --i) {
    const uint32_t word = philox_word(stream, shuffles_++);
    std::swap(order_[i - 1], order_[bounded_from_word(word, static_cast<uint32_t>(i))]);
  }
}

uint64_t Block::exchange(unsigned mask, uint64_t value, unsigned from) {
  Fiber& fiber = fibers_[current_];
  Warp& warp = warps_[current_ / kWarp];
  auto& values = warp.values[fiber.exchanges++ % 2];
  values[lane()] = value;
  fiber.mask = mask;
  wait(State::kAtExchange);
  return values[from % kWarp];
}

// Lets the lanes of a warp go on when all lanes that their mask names have come.
bool Block::release_warps() {
  bool released = false;
  for (size_t first = 0; first < fibers_.size(); first += kWarp) {
    const size_t end = std::min(first + kWarp, fibers_.size());
    unsigned waiting = 0;
    for (size_t i = first; i < end; ++i) {
      if (states_[i] == State::kAtExchange) waiting |= 1u << (i - first);
    }
    for (size_t i = first; i < end; ++i) {
      // Lanes that a short warp does not have cannot come.
      const unsigned there = end - first == kWarp ? ~0u : (1u << (end - first)) - 1;
      if (states_[i] != State::kAtExchange || (fibers_[i].mask & there & ~waiting) != 0) continue;
      states_[i] = State::kReady;
      released = true;
    }
  }
  return released;
}

bool Block::release_block() {
  const bool all = std::all_of(states_.begin(), states_.end(), [](State s) {
    return s == State::kAtBarrier || s == State::kEnded;
  });
  if (!all) return false;
  std::replace(states_.begin(), states_.end(), State::kAtBarrier, State::kReady);
  return true;
}

void Block::report_deadlock() const {
  std::fprintf(stderr,
               "a barrier that not all threads reach, in block (%u, %u, %u):\n",
               blockIdx.x,
               blockIdx.y,
               blockIdx.z);
  for (size_t i = 0; i < fibers_.size(); ++i) {
    const dim3 thread = fibers_[i].thread;
    const char* at = states_[i] == State::kAtBarrier    ? "at __syncthreads"
                     : states_[i] == State::kAtExchange ? "at a shuffle"
                                                        : "has ended";
    std::fprintf(stderr, "  thread (%u, %u, %u) %s\n", thread.x, thread.y, thread.z, at);
  }
  std::abort();
}

// Ends the program where CUDA would refuse the launch.
void check_limits(dim3 grid, dim3 block) {
  constexpr unsigned kMostX = 2147483647, kMostYz = 65535, kMostThreads = 1024, kMostDeep = 64;
  const auto within = [](unsigned n, unsigned most) { return n >= 1 && n <= most; };
  if (within(grid.x, kMostX) && within(grid.y, kMostYz) && within(grid.z, kMostYz) &&
      within(block.x, kMostThreads) && within(block.y, kMostThreads) &&
      within(block.z, kMostDeep) && block.x * block.y * block.z <= kMostThreads)
    return;
  std::fprintf(stderr,
               "CUDA has no grid of (%u, %u, %u) blocks of (%u, %u, %u) threads\n",
               grid.x,
               grid.y,
               grid.z,
               block.x,
               block.y,
               block.z);
  std::abort();
}

}  // namespace

void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread) {
  check_limits(grid, block);
  blockDim = block;
  gridDim = grid;
  Block fibers(block, thread);
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        fibers.run();
      }
    }
  }
}

void wait_for_block() { running->wait(State::kAtBarrier); }
uint64_t exchange(unsigned mask, uint64_t value, unsigned from) {
  return running->exchange(mask, value, from);
}
unsigned lane() { return running->lane(); }

}  // namespace lockstep::fibers
