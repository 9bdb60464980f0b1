#pragma once

#include "runtime/exec/op_set.h"

namespace lockstep::cuda {

// The op implementations of the GPU.
const exec::OpSet& op_set();

}  // namespace lockstep::cuda
