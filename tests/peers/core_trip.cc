// What it costs two cores to hear from each other, beside which the step of a small network is to
// be judged: the trip of a cache line, and reading what the other core has just written. Medians.
//
//   core_trip [CPU CPU]      which two; by default 0 and 1
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "runtime/base/threads.h"

namespace {

constexpr int kRounds = 20'000, kWarmUp = 1'000, kMaxLines = 256;

struct alignas(128) Line {
  std::atomic<int> value = 0;
};
Line ping, pong;
alignas(128) std::array<std::array<std::atomic<uint64_t>, 8>, kMaxLines> lines;  // of 64 bytes

void run_on(int cpu) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<size_t>(cpu), &cpus);
  if (sched_setaffinity(0, sizeof(cpus), &cpus) == 0) return;
  std::perror("core_trip: the CPU cannot be used");
  std::exit(2);
}

void await(const Line& line, int round) {
  while (line.value.load(std::memory_order_acquire) < round) lockstep::pause_briefly();
}

double ns_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
}

struct Medians {
  double round_trip_ns = 0, read_ns = 0;
};

// The other core writes `count` lines in each round, before it answers; this one reads them.
Medians measure(int other_cpu, int count) {
  ping.value = pong.value = 0;
  std::thread other([=] {
    run_on(other_cpu);
    for (int round = 1; round <= kRounds; ++round) {
      await(ping, round);
      for (int i = 0; i < count; ++i)
        for (auto& word : lines[static_cast<size_t>(i)])
          word.store(static_cast<uint64_t>(round), std::memory_order_relaxed);
      pong.value.store(round, std::memory_order_release);
    }
  });
  std::vector<double> trips, reads;
  uint64_t sum = 0;
  for (int round = 1; round <= kRounds; ++round) {
    const auto began = std::chrono::steady_clock::now();
    ping.value.store(round, std::memory_order_release);
    await(pong, round);
    trips.push_back(ns_since(began));
    const auto arrived = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i)
      sum += lines[static_cast<size_t>(i)][0].load(std::memory_order_relaxed);
    reads.push_back(ns_since(arrived));
  }
  other.join();
  if (sum == 1) std::printf("\n");  // the reads must not be left out
  const auto median = [](std::vector<double>& values) {
    std::sort(values.begin() + kWarmUp, values.end());
    return values[static_cast<size_t>((kWarmUp + kRounds) / 2)];
  };
  return {median(trips), median(reads)};
}

}  // namespace

int main(int argc, char** argv) {
  const int first = argc > 2 ? std::atoi(argv[1]) : 0, second = argc > 2 ? std::atoi(argv[2]) : 1;
  run_on(first);
  const double trip_ns = measure(second, 0).round_trip_ns;
  std::printf("a line there and back: %.0f ns\n", trip_ns);
  for (const int count : {4, 66, 132, kMaxLines}) {
    const Medians with_lines = measure(second, count);
    std::printf(
        "%3d lines: %5.0f ns to read what the other core has written, %5.0f ns to write again\n",
        count,
        with_lines.read_ns,
        with_lines.round_trip_ns - trip_ns);
  }
  return 0;
}
