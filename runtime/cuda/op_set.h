#pragma once

#include "runtime/exec/op_set.h"

namespace lockstep::cuda {

// The op implementations of the GPU.
const OpSet& op_set();

}  // namespace lockstep::cuda
