#pragma once
// What the launcher finds in liblockstep_cuda.so, which it loads when a run wants a GPU: so the
// program itself starts on machines without any of CUDA's libraries.

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/exec/device.h"

namespace lockstep::cuda {

struct GpuDescription {
  int ordinal = 0;  // among those that this process sees
  std::string name;
  std::string pci_bus_id;  // "0000:1b:00.0"
  std::string uuid;
  size_t memory_bytes = 0;
  int capability = 0;  // 90: compute capability 9.0
  int multiprocessors = 0;
};

struct GpuProbe {
  std::vector<GpuDescription> gpus;  // that are new enough; ordinals may have gaps
  std::string why_none;              // where there are none: for the user
};

struct GpuRequest {
  int ordinal = 0;
  bool share_gpu = false;       // several ranks may use one GPU
  double init_timeout_s = 300;  // for all ranks to join the communicator
};

struct Plugin {
  int interface;  // kPluginInterface of the build
  void (*set_log_sink)(LogSink program);
  GpuProbe (*probe)();
  std::unique_ptr<Device> (*make_device)(const GpuRequest& request);
};

// Raised with every change of what is declared here or passed across.
inline constexpr int kPluginInterface = 6;
inline constexpr const char* kPluginSymbol = "lockstep_cuda_plugin";
using PluginEntry = const Plugin* (*)();

}  // namespace lockstep::cuda
