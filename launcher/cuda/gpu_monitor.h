#pragma once
// Watches one GPU: clocks, power, temperature, errors.

#include <memory>
#include <string>

#include "runtime/exec/device_state.h"

namespace lockstep::cuda {

// Starts to read the GPU at a PCI address once a second, on a thread of its own. The state is that
// of the last ten readings. Warns, with `description`, of slowdowns (once until they end), of
// uncorrectable ECC errors and of Xids. Without NVML every state is unknown, and a debug line has
// the reason. If a call hangs, the thread is left behind.
std::unique_ptr<exec::DeviceMonitor> make_gpu_monitor(const std::string& pci_bus_id,
                                                      const std::string& description);

}  // namespace lockstep::cuda
