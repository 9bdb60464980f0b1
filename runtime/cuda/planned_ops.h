#pragma once

#include "runtime/exec/op_set.h"

namespace lockstep::cuda {

// What planning for a GPU needs: for each kind of op, which ops a GPU supports, and a workspace
// that is enough for every implementation that may be chosen there. Part of every build, with or
// without CUDA; these ops cannot be run. op_set() has the same ops with their implementations.
const exec::OpSet& planned_ops();

}  // namespace lockstep::cuda
