#pragma once
// The implementations of ops on the GPU; each op's file defines its own.

#include "runtime/exec/op_set.h"

namespace lockstep::cuda {

#define OP(stem, Stem) extern const exec::Implementations kCuda##Stem;
#include "runtime/graph/ops.def"

}  // namespace lockstep::cuda
