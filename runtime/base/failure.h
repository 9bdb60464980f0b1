#pragma once
// The message for the user about an exception that nothing has caught.

#include <exception>
#include <string>

#include "runtime/base/error.h"

namespace lockstep {

struct Failure {
  ExitCode code;
  std::string message;  // a sentence; never the text of a library
};

// An Error keeps its own code and message. Other exceptions come from the standard library: out of
// memory, a path that the system rejects, or a broken invariant, whose type alone is named.
Failure failure_of(const std::exception& error);

}  // namespace lockstep
