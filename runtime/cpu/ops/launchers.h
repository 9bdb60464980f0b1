#pragma once

#include <span>

#include "runtime/exec/backend.h"

namespace lockstep::cpu {

// The table of this backend: one launcher per op, which unpacks the op and calls its kernel.
std::span<const Implementation> cpu_implementations();
// Those of it that are of ops on images.
std::span<const Implementation> vision_implementations();

}  // namespace lockstep::cpu
