#pragma once
// The energy of a run: of its hosts' CPUs and of its ranks' GPUs, as far as it can be read.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "collectives/communicator.h"
#include "runtime/base/json.h"
#include "runtime/exec/device_state.h"
#include "runtime/metrics/cpu_energy.h"
#include "runtime/metrics/step_record.h"

namespace lockstep::train {

// Unknown values are negative, and texts empty if there is nothing to name.
struct EnergyReport {
  double total_j = -1;            // of the run, with its earlier starts
  double cpu_j = -1, gpu_j = -1;  // of this start
  double joules_per_step = -1;    // of this start, mean
  std::string sources;            // "CPUs of 2 hosts (RAPL), 8 GPUs (NVML)"
  std::string not_readable;       // "CPUs of node1: cannot open '/sys/...': Permission denied"
};

// ", 812 J (67.7 J a step)" for the end of a summary; empty if nothing is known.
std::string words_for(const EnergyReport& report);
// Adds energy_total_joules, joules_per_step, energy_cpu_joules, energy_gpu_joules, energy_sources
// and energy_not_readable, as far as they are known.
void add_energy(Json& json, const EnergyReport& report);

// Each machine's CPUs and each GPU are counted once, by the first rank that can read them. Rank 0
// decides when energy is gathered. Does nothing if no rank can read any.
class EnergyWatch {
 public:
  // `monitor`: null on all ranks or on none. `hosts`: by rank. `powercap`: see CpuEnergy.
  // `earlier_j`: of the run's earlier starts, on rank 0. Energy counts from here on. Logs what can
  // be read, and what cannot. Collective.
  EnergyWatch(collectives::Communicator& communicator,
              exec::DeviceMonitor* monitor,
              std::span<const std::string> hosts,
              const std::filesystem::path& powercap,
              double earlier_j);

  // Whether to gather after step `step`: with `log_every` after each such step, but at most ten
  // times a second, otherwise about once a second. On rank 0; others return false.
  bool is_due(int64_t step, int64_t log_every, bool last);
  void count_step() { ++steps_; }
  // Adds up the energy of all ranks. Returns the record on rank 0. Collective.
  std::optional<metrics::EnergyRecord> gather(bool last);
  // On rank 0.
  EnergyReport report() const;

 private:
  // Since construction. Plain data, which ranks exchange as bytes.
  struct Joules {
    double cpu = 0, gpu = 0;
  };
  bool choose(const std::string& kind,
              const std::string& thing,
              const std::string& how,
              const std::string& why_not);
  double gpu_counter(double wait_s);

  collectives::Communicator& communicator_;
  std::span<const std::string> hosts_;
  std::optional<metrics::CpuEnergy> cpu_;    // without a value: this rank counts no CPUs
  exec::DeviceMonitor* monitor_;             // null: this rank counts no GPU
  double gpu_begin_j_ = 0, gpu_last_j_ = 0;  // the GPU's counter
  bool readable_ = false;                    // by any rank
  double earlier_j_, next_ms_ = 0;
  int64_t steps_ = 0, gathered_steps_ = 0;
  Joules sum_;  // of all ranks, at the last gather
  EnergyReport report_;
};

}  // namespace lockstep::train
