#pragma once

#include "runtime/exec/op_set.h"

namespace lockstep::cuda {

// What a GPU can run.
const OpSet& op_set();

}  // namespace lockstep::cuda
