// The most float32 fused multiply-adds that this machine does per second: the yardstick for the
// benchmarks, and, run before and after each of them, a canary for other load on its CPUs.
//
//   fma_peak THREADS [MILLISECONDS [REPEATS]]
//
// Each thread is pinned to a CPU of its own. Prints one JSON object:
//   now    GFLOP/s of all threads by the clock (a multiply-add is two), median of the repeats
//   peak   GFLOP/s by the time that the threads had their CPUs, best of the repeats: what other
//          programs take does not count, so now / peak is the share that they leave
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/peers/fma_peak.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::peers {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Independent chains of multiply-adds that live in registers: as many as there are registers, less
// those for the factor and the addend and a few to spare. Two units with a latency of four or five
// cycles need ten.
constexpr int kChains = HWY_TARGET <= HWY_AVX3 ? 24 : 12;

// Does `rounds` multiply-adds on each chain and returns the floating-point operations. The values
// converge to 1, so nothing is ever denormal or infinite.
double multiply_add_kernel(int64_t rounds, float half, float* sink) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, half);
  hn::Vec<decltype(d)> chain[kChains];
  for (int i = 0; i < kChains; ++i) chain[i] = hn::Set(d, static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
    HWY_UNROLL(kChains)
    for (int i = 0; i < kChains; ++i) chain[i] = hn::MulAdd(chain[i], factor, factor);
  }
  auto sum = chain[0];
  for (int i = 1; i < kChains; ++i) sum = hn::Add(sum, chain[i]);
  *sink = hn::GetLane(sum);
  return 2.0 * kChains * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::peers
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::peers {
namespace {

HWY_EXPORT(multiply_add_kernel);
HWY_EXPORT(target_name);

struct Rates {
  double now = 0;   // GFLOP/s, by the clock
  double peak = 0;  // GFLOP/s, by the CPU time of the threads
};

double seconds_of(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

// The rates of all threads together over `milliseconds`. Every thread counts what it did between
// its own first and last look at the clocks; the rates add up.
Rates measure(const std::vector<int>& cpus, double milliseconds) {
  constexpr int64_t kRounds = 20'000;  // some tens of microseconds between looks at the clock
  std::vector<Rates> rates(cpus.size());
  std::atomic<size_t> ready{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < cpus.size(); ++t) {
    threads.emplace_back([&, t] {
      pin_to(cpus[t]);
      volatile float half = 0.5f;  // unknown to the compiler
      float sink = 0;
      HWY_DYNAMIC_DISPATCH(multiply_add_kernel)(kRounds, half, &sink);
      ready.fetch_add(1);
      while (ready.load() < cpus.size()) std::this_thread::yield();
      const double begin = seconds_of(CLOCK_MONOTONIC);
      const double cpu_begin = seconds_of(CLOCK_THREAD_CPUTIME_ID);
      double operations = 0, seconds = 0;
      while (seconds * 1e3 < milliseconds) {
        operations += HWY_DYNAMIC_DISPATCH(multiply_add_kernel)(kRounds, half, &sink);
        seconds = seconds_of(CLOCK_MONOTONIC) - begin;
      }
      const double cpu_seconds = seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu_begin;
      volatile float keep = sink;
      static_cast<void>(keep);
      rates[t] = {operations / seconds * 1e-9, operations / cpu_seconds * 1e-9};
    });
  }
  for (std::thread& thread : threads) thread.join();
  Rates sum;
  for (const Rates& rate : rates) {
    sum.now += rate.now;
    sum.peak += rate.peak;
  }
  return sum;
}

int run(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 0;
  const double milliseconds = argc > 2 ? std::atof(argv[2]) : 200;
  const int repeats = argc > 3 ? std::atoi(argv[3]) : 7;
  std::vector<int> cpus = allowed_cpus();
  if (argc > 4 || threads < 1 || threads > static_cast<int>(cpus.size()) || !(milliseconds > 0) ||
      repeats < 1) {
    std::fprintf(stderr,
                 "usage: fma_peak THREADS [MILLISECONDS [REPEATS]]; THREADS is 1..%zu here\n",
                 cpus.size());
    return 2;
  }
  cpus.resize(threads);
  std::vector<double> now;
  double peak = 0;
  for (int i = 0; i < repeats; ++i) {
    const Rates rates = measure(cpus, milliseconds);
    now.push_back(rates.now);
    peak = std::max(peak, rates.peak);
  }
  std::sort(now.begin(), now.end());
  std::printf("{\"threads\": %d, \"instructions\": \"%s\", \"now\": %.2f, \"peak\": %.2f}\n",
              threads,
              HWY_DYNAMIC_DISPATCH(target_name)(),
              now[now.size() / 2],
              peak);
  return 0;
}

}  // namespace
}  // namespace lockstep::peers

int main(int argc, char** argv) { return lockstep::peers::run(argc, argv); }
#endif  // HWY_ONCE
