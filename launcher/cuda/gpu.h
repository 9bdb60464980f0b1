#pragma once
// What the plugin says of GPUs before a run opens one.

#include "launcher/cuda/plugin.h"

namespace lockstep::cuda {

// The GPUs that this process sees, or why it sees none that will do. Throws nothing.
GpuProbe probe_gpus();

// Highest rate of dense multiply-adds that the vendor names for a GPU of this name, in
// floating-point operations a second; 0: not known. The denominator of MFU.
double peak_flops(const std::string& name, DType compute, bool tf32);

// Throws Error where the GPU cannot be used.
std::unique_ptr<Device> make_device(const GpuRequest& request);

}  // namespace lockstep::cuda
