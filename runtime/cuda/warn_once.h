#pragma once

#include <string>

namespace lockstep::cuda {

// A warning in the log, of those with the same words the first alone.
void warn_once(const std::string& what);

}  // namespace lockstep::cuda
