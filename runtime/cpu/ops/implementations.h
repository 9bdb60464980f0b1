#pragma once
// The implementations of ops on the CPU; each op's file defines its own.

#include "runtime/exec/op_set.h"

namespace lockstep::cpu {

#define OP(stem, Stem) extern const exec::Implementations kCpu##Stem;
#include "runtime/graph/ops.def"

// Returns the implementations of all ops.
std::span<const exec::Implementations> all_implementations();

}  // namespace lockstep::cpu
