#pragma once
// The one place that turns the codes of CUDA's runtime into errors.

#include <source_location>

namespace lockstep::cuda {

// Throws when `code`, a cudaError_t of `expression` at `where`, is not success: MemoryError where
// memory is short, else Error (kInternal). The message has expression, CUDA's text, file and line,
// host and GPU.
void check(int code,
           const char* expression,
           const std::source_location& where = std::source_location::current());

// The same for the launch of a kernel.
void check_launch(int code, const std::source_location& where);

}  // namespace lockstep::cuda

#define LOCKSTEP_CUDA(call) ::lockstep::cuda::check((call), #call)
