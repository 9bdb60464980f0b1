#pragma once

#include <source_location>

namespace lockstep::cuda {

// Throws Error (kInternal) when `code`, a cudaError_t, says that the launch at `where` was refused.
void check_launch(int code, const std::source_location& where);

}  // namespace lockstep::cuda
