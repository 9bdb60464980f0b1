#pragma once

#include "runtime/exec/op_set.h"

namespace lockstep::cuda {

// What a plan for a GPU needs: of each kind of op what a GPU takes and the workspace, enough for
// each implementation that may be chosen there. Data that every build has, with CUDA and without;
// nothing of it can be run. op_set() is the same with the implementations.
const OpSet& planned_ops();

}  // namespace lockstep::cuda
