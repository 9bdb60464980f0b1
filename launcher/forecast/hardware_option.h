#pragma once
// The hardware of `lockstep plan --on`, which need not be present.

#include <cstddef>
#include <string>

#include "runtime/config/hardware.h"

namespace lockstep::launcher {

struct PlannedHardware {
  Hardware hardware;
  bool described = true;    // false: only the memory of a GPU is known
  size_t device_bytes = 0;  // of a GPU: the driver's total, less what the driver and libraries use
};

// The hardware with this name ("H200", "A100-40GB", "XEON-AMX"), the GPU with this name of the
// driver ("NVIDIA H100 PCIe"), the hardware that a file describes, or a GPU of which only its GiB
// are known ("24"). `flag` is the option that names it. Throws ConfigError, which lists the names.
PlannedHardware planned_hardware(const std::string& flag, const std::string& name);

}  // namespace lockstep::launcher
