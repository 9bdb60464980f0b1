#pragma once
// Invariants, for files that a compiler without fmt reads (kernels for the GPU). Others use
// LOCKSTEP_CHECK of error.h, which says more.

namespace lockstep {

// Prints "internal error: ..." with file and line to stderr and ends the process with
// ExitCode::kInternal (or with abort(), for a core file, where the environment has
// LOCKSTEP_ABORT=1).
[[noreturn, gnu::cold]] void invariant_failed(const char* expression, const char* file, int line);

}  // namespace lockstep

// Checks an invariant of Lockstep itself, never user input.
#define LOCKSTEP_REQUIRE(condition)                                 \
  do {                                                              \
    if (!(condition)) [[unlikely]]                                  \
      ::lockstep::invariant_failed(#condition, __FILE__, __LINE__); \
  } while (false)
