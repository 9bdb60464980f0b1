#pragma once
// Reads facts about this host's GPUs.

#include "launcher/doctor/facts.h"

namespace lockstep::doctor {

// The GPUs that this process sees, their libraries, and copies between each two of them. A child
// process asks, which is abandoned if the driver does not answer within `limit_s`.
GpusFacts read_gpus(double limit_s);

}  // namespace lockstep::doctor
