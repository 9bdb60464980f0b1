#pragma once
// What the CPU can run: each op's file defines its own.

#include "runtime/exec/op_set.h"

namespace lockstep::cpu {

#define OP(stem, Stem) extern const Implementations kCpu##Stem;
#include "runtime/graph/ops.def"

// All of them.
std::span<const Implementations> all_implementations();

}  // namespace lockstep::cpu
