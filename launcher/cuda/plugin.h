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

// Peak rates of products, in floating-point operations a second; 0: unknown.
struct GpuPeaks {
  double fp32 = 0, tf32 = 0, bf16 = 0, fp16 = 0;
};

struct GpuRequest {
  int ordinal = 0;
  bool share_gpu = false;       // several ranks may use one GPU
  double init_timeout_s = 300;  // for all ranks to join the communicator
  GpuPeaks peaks = {};
};

// What connects two GPUs.
struct GpuLink {
  // The way over PCIe, as NVML has it (nvmlGpuTopologyLevel_t), from near to far.
  enum class Pcie {
    kUnknown = -1,
    kBoard = 0,
    kSwitch = 10,
    kSwitches = 20,
    kHostBridge = 30,
    kSocket = 40,
    kSystem = 50
  };
  int nvlinks = 0;            // between them, or to a switch that connects them; 0: none
  int nvlink_generation = 0;  // 4: NVLink 4; 0: unknown
  Pcie pcie = Pcie::kUnknown;
  int peer_access = -1;  // 1: each reads the other's memory, 0: not, -1: unknown

  bool operator==(const GpuLink&) const = default;
};

// Versions for people; empty if the library is missing.
struct LibraryVersions {
  std::string driver;   // "570.86.10 for CUDA 12.8"
  std::string runtime;  // CUDA's runtime and cuBLASLt
  std::string cudnn, nccl;
};

// A GPU's state now. Counts of errors are those since the driver was loaded.
struct GpuCondition {
  exec::DeviceState state;
  std::string slowdown;  // what limits the clock though it should not; empty: nothing
};

// A copy from one GPU's memory to another's.
struct GpuCopy {
  double gbytes_per_s = 0;  // GB/s
  std::string failure;      // empty: it arrived
};

struct Plugin {
  int interface;  // kPluginInterface of its build
  void (*set_log_sink)(LogSink program);
  GpuProbe (*probe)();
  std::unique_ptr<exec::Device> (*make_device)(const GpuRequest& request);
  // What connects GPUs of this machine, given by their PCI bus ids: for each pair, (0, 1), (0, 2),
  // ..., (1, 2), ... Takes a few seconds at most; what cannot be found out is unknown.
  std::vector<GpuLink> (*find_links)(const std::vector<std::string>& pci_bus_ids);
  // The next three may hang if the driver does: call them in a process that may be abandoned.
  LibraryVersions (*library_versions)();
  GpuCondition (*read_condition)(const std::string& pci_bus_id);
  // Copies 64 MiB between GPUs, given by their ordinals, a few times, and compares bytes. A copy
  // that does not end within `limit_s` is left behind.
  GpuCopy (*time_copy)(int from, int to, double limit_s);
};

// Raise it with every change to what is declared here or passed across.
inline constexpr int kPluginInterface = 9;
inline constexpr const char* kPluginSymbol = "lockstep_cuda_plugin";
using PluginEntry = const Plugin* (*)();

}  // namespace lockstep::cuda
