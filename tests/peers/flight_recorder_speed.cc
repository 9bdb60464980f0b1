// What the flight recorder costs: nanoseconds for each thing that a step records. Medians of the
// repeats, one thread.
//
//   flight_recorder_speed FOLDER
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <vector>

#include "runtime/base/flight_recorder.h"

namespace {

constexpr int kRepeats = 9, kTimes = 1'000'000;

template <typename Action>
void time(const char* what, Action&& action) {
  std::vector<double> ns;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < kTimes; ++i) action(i);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
    ns.push_back(took.count() / kTimes);
  }
  std::sort(ns.begin(), ns.end());
  std::printf("%-40s %7.1f ns\n", what, ns[kRepeats / 2]);
}

}  // namespace

int main(int argc, char** argv) {
  using lockstep::FlightOp;
  if (argc != 2) {
    std::fprintf(stderr, "usage: flight_recorder_speed FOLDER\n");
    return 2;
  }
  try {
    auto& recorder = lockstep::FlightRecorder::here();
    recorder.open(argv[1], 0, 2);
    time("an operation (begin, wait, end)", [&](int) {
      const uint64_t number = recorder.begin(FlightOp::kExchange, 4096);
      recorder.wait(number, FlightOp::kExchange, 4096);
      recorder.end(number, FlightOp::kExchange, 4096);
    });
    time("a beat", [&](int) { recorder.beat(); });
    time("a step", [&](int i) { recorder.begin_step(i); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "flight_recorder_speed: %s\n", error.what());
    return 1;
  }
  return 0;
}
