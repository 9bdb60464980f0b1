#include "runtime/base/threads.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <system_error>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/sharing_account.h"
#include "runtime/base/time.h"

namespace lockstep {
namespace {

// Waits until the value is no longer `old`, and returns the new value. It first spins for longer
// than most gaps between two parallel regions of a step, because a sleeping thread of a virtual
// machine takes tens of microseconds to wake. Then it sleeps: on a shared machine, spinning without
// limit could take the core from the very thread that it waits for.
uint32_t wait_for_change(const std::atomic<uint32_t>& value, uint32_t old) {
  constexpr double kSpinMs = 0.1;
  constexpr int kSpinsPerCheck = 64;
  const double start = now_ms();
  do {
    for (int spin = 0; spin < kSpinsPerCheck; ++spin) {
      const uint32_t now = value.load(std::memory_order_acquire);
      if (now != old) return now;
      pause_briefly();
    }
  } while (now_ms() - start < kSpinMs);
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

// Worker threads that run the parts of one loop at a time. One thread, the owner, distributes the
// loops and works too.
//
// Each worker has a seat with a state that goes free -> open (a part is ready) -> claimed -> free.
// The owner opens the seats of the workers that take part and runs part 0. Then it claims every
// seat that is still open and runs that part itself. So it waits only for parts that have begun,
// never for a worker that has yet to wake. The upper bits of the state hold the number of the loop:
// a worker that is delayed between reading `open` and claiming the seat cannot claim a part of a
// later loop.
class ThreadPool {
 public:
  explicit ThreadPool(int threads) {
    for (int part = 1; part < threads; ++part) {
      Seat& seat = seats_.emplace_back();
      try {
        seat.thread = std::thread([this, &seat, part] { work(seat, part); });
      } catch (const std::system_error& error) {
        seats_.pop_back();
        stop();
        throw ConfigError(
            "execution.threads: cannot start thread {} of {}: {}; set fewer, or raise the limit of "
            "processes (ulimit -u, docker --pids-limit)",
            part + 1,
            threads,
            error.code().message());
      }
    }
  }
  ~ThreadPool() { stop(); }

  void run(int64_t count, int team, void (*body)(void*, int64_t, int64_t), void* context) {
    const double start_ms = now_ms();
    if (!account_.pays(start_ms)) return body(context, 0, count);
    count_ = count;
    team_ = team;
    context_ = context;
    body_ = body;
    ++loop_;
    for (int part = 1; part < team; ++part) open(seats_[part - 1]);
    const double opened_ms = now_ms();
    run_part(0);
    int own_parts = 1;
    for (int part = 1; part < team; ++part) {
      if (!claim(seats_[part - 1])) continue;
      run_part(part);
      seats_[part - 1].state.store(state_of(kFree), std::memory_order_relaxed);
      ++own_parts;
    }
    const double finished_ms = now_ms();
    for (int part = 1; part < team; ++part) wait_until_free(seats_[part - 1]);
    const double end_ms = now_ms();
    account_.add((finished_ms - opened_ms) * team / own_parts, end_ms - start_ms, end_ms);
  }

 private:
  struct alignas(64) Seat {
    std::atomic<uint32_t> state{0};  // loop << kPhaseBits | phase
    std::thread thread;
  };
  static constexpr uint32_t kFree = 0, kOpen = 1, kClaimed = 2;
  static constexpr int kPhaseBits = 2;

  // Ends the workers.
  void stop() {
    body_ = nullptr;
    ++loop_;
    for (Seat& seat : seats_) open(seat);
    for (Seat& seat : seats_) seat.thread.join();
  }

  uint32_t state_of(uint32_t phase) const { return loop_ << kPhaseBits | phase; }
  static uint32_t phase_of(uint32_t state) { return state & ((1U << kPhaseBits) - 1); }

  // Both operations are sequentially consistent: notify_one() must not look for a sleeping worker
  // before the worker can see the store.
  void open(Seat& seat) {
    seat.state.store(state_of(kOpen));
    seat.state.notify_one();
  }

  // The owner claims a seat that it has opened. False if the worker has claimed it first.
  bool claim(Seat& seat) {
    uint32_t open = state_of(kOpen);
    return seat.state.compare_exchange_strong(open, state_of(kClaimed));
  }

  static void wait_until_free(const Seat& seat) {
    for (uint32_t now = seat.state.load(std::memory_order_acquire); phase_of(now) != kFree;)
      now = wait_for_change(seat.state, now);
  }

  void run_part(int part) {
    const int64_t begin = count_ * part / team_, end = count_ * (part + 1) / team_;
    if (begin < end) body_(context_, begin, end);
  }

  void work(Seat& seat, int part) {
    uint32_t seen = 0;
    while (true) {
      while (phase_of(seen) != kOpen) seen = wait_for_change(seat.state, seen);
      const uint32_t claimed = (seen & ~kOpen) | kClaimed;
      if (!seat.state.compare_exchange_strong(seen, claimed)) continue;
      if (body_ == nullptr) return;
      run_part(part);
      seen = (claimed & ~kClaimed) | kFree;
      seat.state.store(seen);
      seat.state.notify_one();
    }
  }

  std::deque<Seat> seats_;  // seats of parts 1, 2, ...
  SharingAccount account_;
  // The current loop. Written only while no seat is open or claimed.
  uint32_t loop_ = 0;
  int64_t count_ = 0;
  int team_ = 0;
  void (*body_)(void*, int64_t, int64_t) = nullptr;
  void* context_ = nullptr;
};

int g_threads = 1;
std::unique_ptr<ThreadPool> g_pool;

}  // namespace

void set_compute_threads(int threads) {
  LOCKSTEP_CHECK(threads >= 1);
  if (threads == g_threads) return;
  g_pool.reset();
  g_threads = 1;  // stays 1 if the pool does not start
  if (threads > 1) g_pool = std::make_unique<ThreadPool>(threads);
  g_threads = threads;
}

int compute_threads() { return g_threads; }

namespace detail {

void parallel_ranges(int64_t count,
                     int64_t grain,
                     void (*body)(void*, int64_t, int64_t),
                     void* context) {
  const int64_t max_parts = (count + grain - 1) / grain;
  const int team = static_cast<int>(std::min<int64_t>(g_threads, max_parts));
  g_pool->run(count, team, body, context);
}

}  // namespace detail
}  // namespace lockstep
