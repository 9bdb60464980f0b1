#pragma once
// What the user is told of an exception that nobody has handled.

#include <exception>
#include <string>

#include "runtime/base/error.h"

namespace lockstep {

struct Failure {
  ExitCode code;
  std::string message;  // a sentence, and never the text of a library
};

// An Error has its own code and message. Others were thrown by the standard library: no memory, a
// path that the system refuses, or a broken invariant, of which the type alone is named.
Failure failure_of(const std::exception& error);

}  // namespace lockstep
