#pragma once
// Where tests compute that run on one device or another.

#include <memory>

#include "runtime/exec/backend.h"

namespace lockstep::testing {

// That of the CPU, or with LOCKSTEP_DEVICE=cuda that of the CUDA library beside the program, on the
// first GPU.
std::unique_ptr<exec::Backend> make_backend_of_tests();

}  // namespace lockstep::testing
