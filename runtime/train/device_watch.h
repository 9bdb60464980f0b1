#pragma once
// The state of all ranks' devices: in the metrics, in warnings, and in the result of the run.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "runtime/exec/device_state.h"
#include "runtime/metrics/step_record.h"

namespace lockstep::train {

// Finds ranks whose clock is low beside the other ranks': all wait for them.
class SlowClocks {
 public:
  // Returns a warning for each rank under load whose clock has fallen more than 5% below the median
  // of the other ranks that are under load on the same model of device, and a line for each that
  // has recovered (3%). `names`: "rank 3 on node1, NVIDIA H200 (GPU 3, 0000:1b:00.0)", by rank.
  // Clocks count after three seconds under load, or at the `last` step; they rise at first.
  std::vector<std::string> judge(std::span<const exec::DeviceState> states,
                                 std::span<const std::string> names,
                                 const exec::DeviceMonitor& monitor,
                                 double now_ms,
                                 bool last);

 private:
  struct Rank {
    double loaded_since_ms = -1;  // negative: it is not under load
    double clock_mhz = -1;        // that counts; negative: unknown
    bool slow = false;            // a warning has been given
  };
  std::optional<double> clock_of_others(std::span<const exec::DeviceState> states,
                                        size_t rank) const;

  std::vector<Rank> ranks_;
};

// A rank's device over the whole run; unknown values are negative.
struct DeviceReport {
  double clock_mhz_min = -1, clock_mhz_max = -1;
  double power_w = -1;  // mean
  double temperature_c_max = -1;
  double energy_j = -1;
  std::string limits;  // what has kept its clock low; empty: nothing
};

// "GPUs: 1410 to 1980 MHz (lowest on rank 3), 2613 W, 0.012 kWh, at most 71 C; slowed down: rank 3
// (power brake)". Empty if nothing is known.
std::string words_for(std::span<const DeviceReport> reports);

// Rank 0 decides when states are gathered. Does nothing if the ranks' devices have no monitor.
class DeviceWatch {
 public:
  // `monitor`: null on all ranks or on none. `planned_bytes`: memory of the device that the plan
  // has. Gathers the first states, and logs the memory that is used beside the plan. Collective.
  DeviceWatch(collectives::Communicator& communicator,
              exec::DeviceMonitor* monitor,
              double planned_bytes,
              std::span<const std::string> hosts);

  // Whether to gather after step `step`: with `log_every` after each such step, otherwise about
  // once a second. On rank 0; others return false.
  bool is_due(int64_t step, int64_t log_every, bool last);
  // Gathers the states of all ranks, and on rank 0 warns of slow clocks. Returns the record on rank
  // 0. Collective.
  std::optional<metrics::DeviceRecord> gather(bool last);
  // On rank 0, by rank; empty if nothing is known.
  std::vector<DeviceReport> reports() const;

 private:
  struct Totals {
    DeviceReport report;
    double power_sum = 0, power_count = 0;
    uint64_t limits = 0;
  };
  metrics::DeviceRecord record_of(std::span<const exec::DeviceState> states) const;
  void log_memory(std::span<const exec::DeviceState> states) const;
  void add(std::span<const exec::DeviceState> states);

  collectives::Communicator& communicator_;
  exec::DeviceMonitor* monitor_;  // null: nothing is gathered
  double planned_bytes_;
  std::vector<std::string> names_;  // of the ranks, on rank 0
  double next_ms_ = 0;
  SlowClocks slow_clocks_;
  std::vector<Totals> totals_;
};

}  // namespace lockstep::train
