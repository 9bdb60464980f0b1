#pragma once
// The plugin's view of GPUs before a run opens one.

#include "launcher/cuda/plugin.h"

namespace lockstep::cuda {

// The GPUs that this process sees, or why it sees none that can be used. Does not throw.
GpuProbe probe_gpus();

// Throws Error if the GPU cannot be used.
std::unique_ptr<exec::Device> make_device(const GpuRequest& request);

}  // namespace lockstep::cuda
