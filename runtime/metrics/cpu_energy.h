#pragma once
// The energy of this host's CPUs and their memory, by RAPL.
//
// RAPL (running average power limit) is a set of energy counters in Intel's CPUs, and in AMD's from
// Zen on. Linux shows them as folders: intel-rapl:0 and intel-rapl:1 are zones, intel-rapl:0:1 is a
// part of intel-rapl:0. The file `name` in each has what it counts:
//
//   package-0     all of a package (socket), with its cores and caches
//   core, uncore  parts of a package, which that includes
//   dram          the memory of a package, which that does not include; AMD has none
//   psys          the whole platform, which includes packages
//
// So packages and their dram are added, and nothing counts twice. A counter starts again at 0 when
// it reaches `max_energy_range_uj`: under load, every few minutes.

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::metrics {

// Thread-safe.
class CpuEnergy {
 public:
  // `powercap` differs from /sys/class/powercap only in tests.
  explicit CpuEnergy(const std::filesystem::path& powercap);
  CpuEnergy(const CpuEnergy&) = delete;
  CpuEnergy& operator=(const CpuEnergy&) = delete;

  // The file that is absent or cannot be read, and why; empty if the energy can be read.
  const std::string& why_not() const { return why_not_; }
  // Joules since construction, of everything that ran on this host; 0 if they cannot be read. What
  // a file that cannot be read now would add is added once it can.
  double joules();
  // From now on, reads often enough on a thread of its own that no counter starts again unnoticed,
  // even if joules() is not called for long.
  void watch();

 private:
  struct Counter {
    std::filesystem::path file;
    uint64_t range_uj = 0;  // what it counts to before it starts again at 0
    uint64_t last_uj = 0;
  };
  void find_counters(const std::filesystem::path& powercap);

  std::string why_not_;
  std::mutex mutex_;
  std::condition_variable_any stopping_;
  std::vector<Counter> counters_;
  uint64_t sum_uj_ = 0;
  std::jthread watch_;  // the last member: it stops before the others end
};

}  // namespace lockstep::metrics
