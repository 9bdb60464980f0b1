#pragma once
// The GPU of `lockstep plan --gpu`, which need not be present.

#include <cstddef>
#include <string>

namespace lockstep::cuda {
struct GpuModel;
}  // namespace lockstep::cuda

namespace lockstep::launcher {

struct PlannedGpu {
  const cuda::GpuModel* model = nullptr;  // null: only its memory is known
  size_t run_bytes = 0;  // the driver's total, less what the driver and the libraries use
};

// The GPU with this name ("H200", "A100-40GB"), with this name of the driver ("NVIDIA H100 PCIe"),
// or with this many GiB ("24"). Throws ConfigError, which lists the names.
PlannedGpu planned_gpu(const std::string& name);

}  // namespace lockstep::launcher
