#pragma once
// Reads facts about this host's GPUs.

#include <filesystem>

#include "launcher/doctor/facts.h"

namespace lockstep::doctor {

// The GPUs that this process sees, their libraries, and copies between each two of them, as many as
// `copies_s` seconds allow. A child process asks, which is abandoned if the driver does not answer
// within `limit_s`.
GpusFacts read_gpus(double copies_s, double limit_s);

// NVIDIA's GPUs on the PCI bus. For `root` see read_host.h.
int count_gpus_on_bus(const std::filesystem::path& root = "/");

}  // namespace lockstep::doctor
