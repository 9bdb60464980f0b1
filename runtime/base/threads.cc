#include "runtime/base/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/time.h"

namespace lockstep {
namespace {

// TimedWaits until the value is no longer `old`: spins for a while, longer than most gaps between
// two parallel regions of a step, since a sleeping thread of a virtual machine takes tens of
// microseconds to wake; then sleeps. A spin without limit would take the core from the very thread
// it waits for when the machine is shared.
uint32_t wait_for_change(const std::atomic<uint32_t>& value, uint32_t old) {
  constexpr double kSpinMs = 0.1;
  constexpr int kSpinsPerLook = 64;
  const double start = now_ms();
  do {
    for (int spin = 0; spin < kSpinsPerLook; ++spin) {
      const uint32_t now = value.load(std::memory_order_acquire);
      if (now != old) return now;
      pause_briefly();
    }
  } while (now_ms() - start < kSpinMs);
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

// Worker threads that run one job at a time, each its own part of it. One thread, the owner, gives
// out jobs.
class ThreadPool {
 public:
  explicit ThreadPool(int threads) {
    for (int index = 1; index < threads; ++index)
      workers_.emplace_back([this, index] { work(index); });
  }
  ~ThreadPool() {
    body_ = nullptr;
    start_job();
    for (std::thread& worker : workers_) worker.join();
  }

  void run(int64_t count, int team, void (*body)(void*, int64_t, int64_t), void* context) {
    count_ = count;
    team_ = team;
    context_ = context;
    body_ = body;
    running_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
    start_job();
    run_part(0);
    for (uint32_t left = running_.load(std::memory_order_acquire); left != 0;)
      left = wait_for_change(running_, left);
  }

 private:
  void start_job() {
    job_.fetch_add(1, std::memory_order_release);
    job_.notify_all();
  }

  void run_part(int index) {
    if (index >= team_) return;
    const int64_t begin = count_ * index / team_, end = count_ * (index + 1) / team_;
    if (begin < end) body_(context_, begin, end);
  }

  void work(int index) {
    uint32_t seen = 0;
    while (true) {
      seen = wait_for_change(job_, seen);
      if (body_ == nullptr) return;
      run_part(index);
      if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
    }
  }

  std::vector<std::thread> workers_;
  alignas(64) std::atomic<uint32_t> job_{0};      // number of the job; changes when there is one
  alignas(64) std::atomic<uint32_t> running_{0};  // workers that have not finished it
  // The job; written before job_ changes.
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
  g_threads = threads;
  if (threads > 1) g_pool = std::make_unique<ThreadPool>(threads);
}

int compute_threads() { return g_threads; }

int available_cpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return 1;
  return std::max(1, CPU_COUNT(&mask));
}

namespace detail {

void parallel_ranges(int64_t count,
                     int64_t grain,
                     void (*body)(void*, int64_t, int64_t),
                     void* context) {
  const int64_t most = (count + grain - 1) / grain;
  const int team = static_cast<int>(std::min<int64_t>(g_threads, most));
  g_pool->run(count, team, body, context);
}

}  // namespace detail
}  // namespace lockstep
