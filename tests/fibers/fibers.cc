#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/fibers/cuda_on_host.h"
#include "tests/fibers/kernel_memory.h"
#include "tests/fibers/order.h"

namespace lockstep::fibers {
namespace {

// Not a power of two, which would put the tops of all stacks into the same lines of the cache.
constexpr size_t kStackBytes = 64 * 1024 + 320;
// What the lowest bytes of a stack hold unless it overflowed.
constexpr uint64_t kGuard = 0x5afe57ac5afe57ac;
constexpr size_t kGuardWords = 8;
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

struct Fiber {
  Context context;
  dim3 thread;
  unsigned mask = 0;       // of the exchange that it waits in
  unsigned exchanges = 0;  // that it has come to
};

// The values that a warp's lanes give each other. A lane can be one exchange ahead of another, so
// values of two exchanges are kept.
using LaneValues = std::array<std::array<LaneValue, kWarp>, 2>;

// Where the lanes of a warp are, each a bit: those that can go on, that wait for each other, that
// wait for the block; the others have ended.
struct Warp {
  unsigned lanes = 0;  // that it has
  unsigned ready = 0, at_exchange = 0, at_barrier = 0;
  LaneValues* values = nullptr;
};

// A warp runs until each of its lanes waits for the block or has ended, then the next one does.
class Block {
 public:
  Block(dim3 size, Order order, uint64_t seed, void (*thread)(const void*), const void* closure)
      : order_(order),
        random_(seed),
        thread_(thread),
        closure_(closure),
        fibers_(size.x * size.y * size.z),
        warps_((fibers_.size() + kWarp - 1) / kWarp),
        warp_order_(warps_.size()) {
    stacks_ = stacks(fibers_.size());
    auto* const values = reinterpret_cast<LaneValues*>(stacks_ + fibers_.size() * kStackBytes);
    for (size_t i = 0; i < warps_.size(); ++i) warps_[i].values = values + i;
    std::iota(warp_order_.begin(), warp_order_.end(), size_t{0});
    if (order_ == Order::kReverse) std::reverse(warp_order_.begin(), warp_order_.end());
    for (size_t i = 0; i < fibers_.size(); ++i) {
      const auto number = static_cast<unsigned>(i);
      fibers_[i].thread = {number % size.x, number / size.x % size.y, number / (size.x * size.y)};
      warps_[i / kWarp].lanes |= 1u << i % kWarp;
    }
  }

  void run();
  void wait_for_block() { wait(&Warp::at_barrier); }
  const LaneValue* exchange(unsigned mask, const LaneValue& value);
  unsigned lane() const { return static_cast<unsigned>(current_ % kWarp); }

 private:
  // Memory for `count` stacks and, behind them, the values of their warps, which the kernels read,
  // too. Kept from launch to launch: to clear it would take longer than most kernels.
  static std::byte* stacks(size_t count) {
    static size_t kept = 0;
    static std::byte* memory = nullptr;
    const auto bytes = [](size_t stacks) {
      return stacks * kStackBytes + (stacks + kWarp - 1) / kWarp * sizeof(LaneValues);
    };
    if (count > kept) {
      if (kept > 0) give_memory_back(memory, bytes(kept));
      memory = take_memory(bytes(count));
      kept = count;
    }
    return memory;
  }
  static void enter();
  Warp& warp() { return warps_[current_ / kWarp]; }
  void wait(unsigned Warp::*where);
  void leave();
  bool take_next(size_t number);
  unsigned pick(unsigned ready);
  uint32_t draw();
  void shuffle_warps();
  void release_exchange(size_t number);
  bool release_block();
  void guard_stacks();
  void check_stacks() const;
  [[noreturn]] void report_deadlock() const;

  const Order order_;
  uint64_t random_;
  void (*const thread_)(const void*);
  const void* const closure_;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::vector<size_t> warp_order_;
  std::byte* stacks_ = nullptr;
  Context scheduler_;
  size_t current_ = 0;
};

Block* running = nullptr;

void Block::enter() {
  running->thread_(running->closure_);
  running->leave();
}

// Gives the processor to the next lane of the warp or, where none can go on, to run().
void Block::leave() {
  Fiber& fiber = fibers_[current_];
  warp().ready &= ~(1u << lane());
  if (!take_next(current_ / kWarp)) return switch_to(fiber.context, scheduler_);
  Fiber& next = fibers_[current_];
  if (&next != &fiber) switch_to(fiber.context, next.context);
}

void Block::wait(unsigned Warp::*where) {
  warp().*where |= 1u << lane();
  leave();
}

// A lane of those that can go on.
unsigned Block::pick(unsigned ready) {
  const auto lowest = [](unsigned lanes) { return static_cast<unsigned>(std::countr_zero(lanes)); };
  if (order_ == Order::kForward) return lowest(ready);
  if (order_ == Order::kReverse) return kWarp - 1 - static_cast<unsigned>(std::countl_zero(ready));
  const unsigned begin = draw() % kWarp;
  return (begin + lowest(std::rotr(ready, static_cast<int>(begin)))) % kWarp;
}

// Makes a lane of the warp that can go on the current fiber; false: there is none.
bool Block::take_next(size_t number) {
  Warp& warp = warps_[number];
  if (warp.ready == 0 && warp.at_exchange != 0) release_exchange(number);
  if (warp.ready == 0) return false;
  current_ = number * kWarp + pick(warp.ready);
  threadIdx = fibers_[current_].thread;
  return true;
}

void Block::run() {
  for (Warp& warp : warps_) warp.ready = warp.lanes;
  for (size_t i = 0; i < fibers_.size(); ++i)
    prepare(fibers_[i].context, stacks_ + i * kStackBytes, enter);
  guard_stacks();
  running = this;
  do {
    if (order_ == Order::kShuffled) shuffle_warps();
    for (const size_t warp : warp_order_)
      while (take_next(warp)) switch_to(scheduler_, fibers_[current_].context);
  } while (release_block());
  running = nullptr;
  check_stacks();
}

void Block::guard_stacks() {
  for (size_t i = 0; i < fibers_.size(); ++i)
    std::fill_n(reinterpret_cast<uint64_t*>(stacks_ + i * kStackBytes), kGuardWords, kGuard);
}

void Block::check_stacks() const {
  for (size_t i = 0; i < fibers_.size(); ++i) {
    const auto* const words = reinterpret_cast<const uint64_t*>(stacks_ + i * kStackBytes);
    if (std::all_of(words, words + kGuardWords, [](uint64_t word) { return word == kGuard; }))
      continue;
    std::fprintf(stderr,
                 "fibers: thread %zu of a block needed more than its stack of %zu bytes\n",
                 i,
                 kStackBytes);
    std::abort();
  }
}

// A linear congruential generator, which costs next to nothing: for orders it is good enough.
uint32_t Block::draw() {
  random_ = random_ * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>(random_ >> 32);
}

void Block::shuffle_warps() {
  for (size_t i = warp_order_.size(); i > 1; --i)
    std::swap(warp_order_[i - 1], warp_order_[draw() % i]);
}

const LaneValue* Block::exchange(unsigned mask, const LaneValue& value) {
  Fiber& fiber = fibers_[current_];
  auto& values = (*warp().values)[fiber.exchanges++ % 2];
  values[lane()] = value;
  fiber.mask = mask;
  wait(&Warp::at_exchange);
  return values.data();
}

// Lets the lanes of a warp go on that wait for no lane but such as wait, too. Lanes that a short
// warp does not have cannot come.
void Block::release_exchange(size_t number) {
  Warp& warp = warps_[number];
  const unsigned missing = warp.lanes & ~warp.at_exchange;
  if (missing == 0) {
    warp.ready = std::exchange(warp.at_exchange, 0);
    return;
  }
  for (unsigned lane = 0; lane < kWarp; ++lane)
    if ((warp.at_exchange >> lane & 1) != 0 && (fibers_[number * kWarp + lane].mask & missing) == 0)
      warp.ready |= 1u << lane;
  warp.at_exchange &= ~warp.ready;
}

// Lets all threads that wait for the block go on; false: all have ended.
bool Block::release_block() {
  bool waits = false;
  for (Warp& warp : warps_) {
    if (warp.at_exchange != 0) report_deadlock();
    warp.ready = std::exchange(warp.at_barrier, 0);
    waits |= warp.ready != 0;
  }
  return waits;
}

void Block::report_deadlock() const {
  std::fprintf(stderr,
               "a barrier that not all threads reach, in block (%u, %u, %u):\n",
               blockIdx.x,
               blockIdx.y,
               blockIdx.z);
  for (size_t i = 0; i < fibers_.size(); ++i) {
    const dim3 thread = fibers_[i].thread;
    const Warp& warp = warps_[i / kWarp];
    const auto in = [&](unsigned lanes) { return (lanes >> i % kWarp & 1) != 0; };
    const char* at = in(warp.at_barrier)    ? "at __syncthreads"
                     : in(warp.at_exchange) ? "at a shuffle"
                                            : "has ended";
    std::fprintf(stderr, "  thread (%u, %u, %u) %s\n", thread.x, thread.y, thread.z, at);
  }
  std::abort();
}

// Ends the program where CUDA would refuse the launch.
void check_limits(dim3 grid, dim3 block) {
  constexpr unsigned kMaxX = 2147483647, kMaxZ = 65535, kMaxThreads = 1024, kMaxDeep = 64;
  const auto within = [](unsigned n, unsigned most) { return n >= 1 && n <= most; };
  if (within(grid.x, kMaxX) && within(grid.y, max_blocks_down) && within(grid.z, kMaxZ) &&
      within(block.x, kMaxThreads) && within(block.y, kMaxThreads) && within(block.z, kMaxDeep) &&
      block.x * block.y * block.z <= kMaxThreads)
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

// Memory that ends, but for its alignment, where a page follows that nobody may touch.
std::byte* shared_memory(size_t bytes) {
  constexpr size_t kPage = 4096, kAlignment = 16, kMax = kMaxDynamicShared + kPage;
  if (bytes > kMaxDynamicShared) {
    std::fprintf(stderr, "not every GPU has %zu bytes of shared memory for a block\n", bytes);
    std::abort();
  }
  constexpr size_t kRoom = kMax / kPage * kPage;
  static std::byte* const memory = take_memory(kRoom);
  return memory + kRoom - (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// A number from which neighbours cannot be told: the finalizer of MurmurHash3.
uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
  return x ^ x >> 33;
}

// The order of a grid's blocks. Shuffled, it goes round in steps of a length that has no divisor in
// common with the number of blocks, so that each comes once.
class BlockOrder {
 public:
  BlockOrder(uint64_t blocks, Order order, uint64_t seed) : blocks_(blocks) {
    if (order == Order::kReverse) first_ = step_ = blocks - 1;
    if (order != Order::kShuffled) return;
    first_ = mixed(seed) % blocks;
    step_ = mixed(seed + 1) % blocks;
    while (std::gcd(step_, blocks) != 1) ++step_;
  }
  // Blocks and steps have 32 bits in every grid that a test can wait for.
  uint64_t at(uint64_t i) const { return (first_ + i * step_) % blocks_; }

 private:
  uint64_t blocks_, first_ = 0, step_ = 1;
};

}  // namespace

void run_grid(
    const Launched& what, dim3 grid, dim3 block, void (*thread)(const void*), const void* closure) {
  check_limits(grid, block);
  launched = what;
  blockDim = block;
  gridDim = grid;
  static uint64_t launches = 0;
  const uint64_t seed = mixed(++launches);
  const Order taken = order == Order::kEach ? static_cast<Order>(seed % 3) : order;
  Block fibers(block, taken, seed, thread, closure);
  const uint64_t across = grid.x, layer = across * grid.y;
  const BlockOrder blocks(layer * grid.z, taken, seed);
  const size_t shared_bytes = std::exchange(dynamic_shared_bytes, 0);
  dynamic_shared = shared_bytes > 0 ? shared_memory(shared_bytes) : nullptr;
  for (uint64_t i = 0; i < layer * grid.z; ++i) {
    const uint64_t number = blocks.at(i);
    blockIdx = {static_cast<unsigned>(number % across),
                static_cast<unsigned>(number % layer / across),
                static_cast<unsigned>(number / layer)};
    if (shared_bytes > 0) std::memset(dynamic_shared, 0xff, shared_bytes);  // NaNs
    fibers.run();
  }
}

bool in_kernel() { return running != nullptr; }
void wait_for_block() { running->wait_for_block(); }
const LaneValue* exchange(unsigned mask, const LaneValue& value) {
  return running->exchange(mask, value);
}
unsigned lane() { return running->lane(); }

}  // namespace lockstep::fibers
