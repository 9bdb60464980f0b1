#pragma once
// What connects the GPUs of a machine: NVLink or PCIe.

#include <string>
#include <vector>

#include "launcher/cuda/plugin.h"

namespace lockstep::cuda {

// See Plugin::find_links. Without NVML only peer access is known.
std::vector<GpuLink> find_links(const std::vector<std::string>& pci_bus_ids);

}  // namespace lockstep::cuda
