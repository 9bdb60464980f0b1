#pragma once
// Invariants, for files that are compiled without fmt (GPU kernels). Other files use LOCKSTEP_CHECK
// of error.h, whose message has more detail.

namespace lockstep {

// Prints "internal error: ..." with file and line to stderr and ends the process with
// ExitCode::kInternal. If the environment has LOCKSTEP_ABORT=1, it calls abort() instead, for a
// core file.
[[noreturn, gnu::cold]] void invariant_failed(const char* expression, const char* file, int line);

}  // namespace lockstep

// Checks an invariant of Lockstep itself, never user input.
#define LOCKSTEP_REQUIRE(condition)                                 \
  do {                                                              \
    if (!(condition)) [[unlikely]]                                  \
      ::lockstep::invariant_failed(#condition, __FILE__, __LINE__); \
  } while (false)
