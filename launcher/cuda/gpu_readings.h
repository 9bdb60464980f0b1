#pragma once
// Reads one GPU's state through NVML.

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/cuda/nvml.h"
#include "runtime/exec/device_state.h"

namespace lockstep::cuda {

// Bits of DeviceState::limits, as NVML has them (nvmlClocksEventReasons).
inline constexpr uint64_t kGpuIdle = 0x1, kHardwareSlowdown = 0x8, kSoftwareThermal = 0x20,
                          kHardwareThermal = 0x40, kPowerBrake = 0x80;
// Those that mean that something is wrong with the machine. A power cap under load is normal.
inline constexpr uint64_t kAlarming =
    kHardwareSlowdown | kSoftwareThermal | kHardwareThermal | kPowerBrake;

std::string words_for_limits(uint64_t limits);
// "Xid 79: the GPU has fallen off the bus".
std::string words_for_xid(int64_t xid);

class GpuReadings {
 public:
  // Xids are only reported from here on.
  GpuReadings(const Nvml& nvml, Nvml::Device device);

  // One reading; counters are those of the driver, since it was loaded. `busy` is 0 or 1.
  exec::DeviceState read() const;
  // The Xids since the last call. Does not wait.
  std::vector<int64_t> take_faults();

 private:
  const Nvml& nvml_;
  Nvml::Device device_;
  Nvml::EventSet events_ = nullptr;  // null if they cannot be had
  bool lost_ = false;                // this has been reported
};

}  // namespace lockstep::cuda
