#pragma once

#include "runtime/exec/device.h"

namespace lockstep::cpu {

std::unique_ptr<Device> make_device();

}  // namespace lockstep::cpu
