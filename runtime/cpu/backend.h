#pragma once
// Training on the CPU.

#include <memory>

#include "runtime/exec/backend.h"

namespace lockstep::cpu {

// The op kernels of the CPU.
const exec::OpSet& op_set();

// Returns a backend that computes in this process, on compute_threads() threads.
std::unique_ptr<exec::Backend> make_backend();

}  // namespace lockstep::cpu
