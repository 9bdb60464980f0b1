#pragma once
// GPUs as the plugin offers them: before a run opens one, opened, and watched.

#include <memory>
#include <string>
#include <vector>

#include "launcher/cuda/plugin.h"
#include "runtime/exec/device_state.h"

namespace lockstep::cuda {

// The GPUs that this process sees, or why it sees none that can be used. Does not throw.
GpuProbe probe_gpus();

// Throws Error if the GPU cannot be used.
std::unique_ptr<exec::Device> make_device(const GpuRequest& request);

// What connects the GPUs of the machine, NVLink or PCIe. See Plugin::find_links. Without NVML only
// peer access is known.
std::vector<GpuLink> find_links(const std::vector<std::string>& pci_bus_ids);

// "13.0" of CUDA's number 13000.
std::string version_text(int version);

// What `doctor` asks; see Plugin.
LibraryVersions library_versions();
GpuCondition read_condition(const std::string& pci_bus_id);
GpuCopy time_copy(int from, int to, double limit_s);

// Starts to read the GPU at a PCI address once a second, on a thread of its own. The state is that
// of the last ten readings. Warns, with `description`, of slowdowns (once until they end), of
// uncorrectable ECC errors and of Xids. Without NVML every state is unknown, and a debug line has
// the reason. If a call hangs, the thread is left behind.
std::unique_ptr<exec::DeviceMonitor> make_gpu_monitor(const std::string& pci_bus_id,
                                                      const std::string& description);

}  // namespace lockstep::cuda
