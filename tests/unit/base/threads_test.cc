// Catches: an index that no thread, or more than one, works on; a wake-up that is lost, or a loop
// that waits for a thread that does not run (the test would hang).
#include "runtime/base/threads.h"

#include <gtest/gtest.h>

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/sharing_account.h"
#include "tests/reference/sanitizers.h"

namespace lockstep {
namespace {

TEST(Threads, EveryIndexOnceForAnyCount) {
  for (int threads : {1, 2, 3, 5}) {
    set_compute_threads(threads);
    for (int64_t count : {0, 1, 2, 7, 64, 1000}) {
      for (int64_t grain : {1, 3, 100}) {
        std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
        parallel_for(count, grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        for (const auto& hit : hits) ASSERT_EQ(hit, 1);
      }
    }
  }
  set_compute_threads(1);
}

// New threads for each loop, because a loop that loses time makes the next ones stay on one thread.
TEST(Threads, EveryIndexOnceOnManyMoreThreadsThanCores) {
  for (int threads : {64, 128}) {
    for (int64_t count : {63, 64, 65, 128, 129, 100'003}) {
      set_compute_threads(threads);
      std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
      std::atomic<int> parts{0};
      parallel_for(count, 1, [&](int64_t begin, int64_t end) {
        ++parts;
        for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
      });
      EXPECT_EQ(parts, std::min<int64_t>(threads, count));
      for (const auto& hit : hits) ASSERT_EQ(hit, 1);
      set_compute_threads(1);
    }
  }
}

TEST(Threads, ManyLoopsOnManyMoreThreadsThanCores) {
  for (int threads : {64, 128}) {
    set_compute_threads(threads);
    std::vector<int> hits(1000, 0);
    for (int round = 0; round < 500; ++round)
      parallel_for(1000, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
      });
    set_compute_threads(1);
    EXPECT_EQ(hits, std::vector<int>(1000, 500));
  }
}

TEST(Threads, ManyShortLoopsLoseNoWakeUp) {
  set_compute_threads(4);
  std::atomic<int64_t> sum{0};
  for (int round = 0; round < 3000; ++round) {
    parallel_for(4, 1, [&](int64_t begin, int64_t end) {
      for (int pause = 0; pause < 100 * (end - begin); ++pause) pause_briefly();  // so that it pays
      sum += end - begin;
    });
  }
  set_compute_threads(1);
  EXPECT_EQ(sum, 12'000);
}

std::atomic<int> g_held{0};
std::atomic<bool> g_release{false};

void hold(int) {
  ++g_held;
  while (!g_release) pause_briefly();
  --g_held;
}

// Holds all other threads of the process in a signal handler, as a busy machine holds them.
class HeldThreads {
 public:
  HeldThreads() {
    g_release = false;
    struct sigaction action {};
    action.sa_handler = hold;
    sigaction(SIGUSR2, &action, &before_);
    int others = 0;
    DIR* const tasks = opendir("/proc/self/task");
    while (const dirent* entry = readdir(tasks)) {
      const int thread = std::atoi(entry->d_name);
      if (thread == 0 || thread == static_cast<int>(syscall(SYS_gettid))) continue;
      others += syscall(SYS_tgkill, getpid(), thread, SIGUSR2) == 0;
    }
    closedir(tasks);
    while (g_held < others) usleep(100);
  }
  ~HeldThreads() {
    g_release = true;
    while (g_held > 0) usleep(100);
    sigaction(SIGUSR2, &before_, nullptr);
  }
  int count() const { return g_held; }

 private:
  struct sigaction before_ {};
};

TEST(Threads, LoopsEndThoughNoOtherThreadRuns) {
  if (&__tsan_init != nullptr)
    GTEST_SKIP() << "ThreadSanitizer delays signals to threads that wait";
  set_compute_threads(3);
  std::vector<int> hits(100, 0);
  {
    const HeldThreads held;
    ASSERT_GE(held.count(), 2);
    for (int round = 0; round < 50; ++round)
      parallel_for(100, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
      });
  }
  set_compute_threads(1);
  EXPECT_EQ(hits, std::vector<int>(100, 50));
}

TEST(Threads, ThatCannotStartAreRefused) {
  pthread_attr_t before, huge;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_getattr_default_np(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 48), 0);  // beyond the address space
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  EXPECT_THROW(set_compute_threads(3), ConfigError);
  EXPECT_EQ(compute_threads(), 1);
  pthread_setattr_default_np(&before);
  set_compute_threads(3);
  EXPECT_EQ(compute_threads(), 3);
  set_compute_threads(1);
}

TEST(SharingAccount, PausesTenTimesAsLongAsWasLost) {
  SharingAccount account;
  account.add(/*alone_ms=*/1, /*shared_ms=*/0.6, /*now_ms=*/1);
  EXPECT_TRUE(account.pays(1));
  account.add(1, 5.4, 10);  // 4 more than the gain: far beyond what a wake-up costs
  EXPECT_FALSE(account.pays(10));
  EXPECT_FALSE(account.pays(49.9));
  EXPECT_TRUE(account.pays(50.1));
}

TEST(SharingAccount, GainsCountForAWhile) {
  SharingAccount account;
  for (int loop = 0; loop < 1000; ++loop) account.add(2, 1, loop);
  account.add(1, 100, 2000);
  EXPECT_TRUE(account.pays(2000));
  account.add(1, 3, 2001);
  EXPECT_FALSE(account.pays(2001));
}

}  // namespace
}  // namespace lockstep
