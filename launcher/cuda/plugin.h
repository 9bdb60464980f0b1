#pragma once
// The interface of liblockstep_cuda.so, which the launcher loads if a run wants a GPU. So the
// program itself starts on machines without CUDA's libraries.

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/exec/device.h"

namespace lockstep::cuda {

struct GpuDescription {
  int ordinal = 0;  // among the GPUs that this process sees
  std::string name;
  std::string pci_bus_id;  // "0000:1b:00.0"
  std::string uuid;
  size_t memory_bytes = 0;
  int capability = 0;  // 90: compute capability 9.0
  int multiprocessors = 0;
};

struct GpuProbe {
  std::vector<GpuDescription> gpus;  // only those that are new enough; ordinals may have gaps
  std::string why_none;              // if there are none: the reason, for the user
};

struct GpuRequest {
  int ordinal = 0;
  bool share_gpu = false;       // several ranks may use one GPU
  double init_timeout_s = 300;  // for all ranks to join the communicator
};

struct Plugin {
  int interface;  // kPluginInterface of its build
  void (*set_log_sink)(LogSink program);
  GpuProbe (*probe)();
  std::unique_ptr<Device> (*make_device)(const GpuRequest& request);
};

// Raise it with every change to what is declared here or passed across.
inline constexpr int kPluginInterface = 6;
inline constexpr const char* kPluginSymbol = "lockstep_cuda_plugin";
using PluginEntry = const Plugin* (*)();

}  // namespace lockstep::cuda
