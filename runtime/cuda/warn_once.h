#pragma once

#include <string>

namespace lockstep::cuda {

// Logs a warning, unless one with the same words has been logged before.
void warn_once(const std::string& what);

}  // namespace lockstep::cuda
