#pragma once
// What a device reports about itself while it works: clocks, power, temperature, errors.

#include <cstdint>
#include <string>

namespace lockstep::exec {

// A device's state over the last seconds. Plain data, which ranks exchange as bytes. A value that
// the device does not report is negative.
struct DeviceState {
  static constexpr double kUnknown = -1;

  double clock_mhz = kUnknown;         // of its processors, mean
  double max_clock_mhz = kUnknown;     // the highest that its model reaches
  double memory_clock_mhz = kUnknown;  // mean
  double busy = kUnknown;              // share of the readings in which it worked, 0..1
  double power_w = kUnknown;           // mean
  double temperature_c = kUnknown;     // highest
  double energy_j = kUnknown;          // since its monitor began
  double used_bytes = kUnknown;        // of its memory, by all processes
  double corrected_errors = kUnknown;  // ECC errors of its memory since its monitor began
  double uncorrected_errors = kUnknown;
  uint64_t limits = 0;      // bits of what kept its clock low most of the time
  int64_t fault = 0;        // number of the latest fault that its driver has reported; 0: none
  int64_t has_monitor = 0;  // 0: nothing can be read, now or later
  int64_t energy_from_power = 0;  // 1: it has no counter of energy, so power was added up over time
};

// Reads a device's state on a thread of its own, so that a driver that hangs holds nothing up.
class DeviceMonitor {
 public:
  virtual ~DeviceMonitor() = default;
  // The latest state. Waits for the first one, for up to `wait_s` seconds. If the device has not
  // answered for some seconds, all values are unknown.
  virtual DeviceState state(double wait_s) = 0;
  // Asks for a new reading, for which the next call of state() waits.
  virtual void refresh() {}
  // Why state() has no energy.
  virtual std::string why_no_energy() const { return "it reports none"; }
  // Device::description().
  virtual std::string description() const = 0;
  // DeviceState::limits in words, "power cap, thermal slowdown (hardware)"; empty for 0.
  virtual std::string words_for_limits(uint64_t limits) const = 0;
};

}  // namespace lockstep::exec
