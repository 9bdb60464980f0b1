#pragma once
// Turns error codes of the CUDA runtime into exceptions.

#include <source_location>

namespace lockstep::cuda {

// Throws if `code`, the cudaError_t of `expression` at `where`, is not cudaSuccess: MemoryError if
// memory has run out, otherwise Error (kInternal). The message has the expression, CUDA's text,
// file and line, host and GPU.
void check(int code,
           const char* expression,
           const std::source_location& where = std::source_location::current());

// The same for a kernel launch.
void check_launch(int code, const std::source_location& where);

}  // namespace lockstep::cuda

#define LOCKSTEP_CUDA(call) ::lockstep::cuda::check((call), #call)
