#pragma once
// Loads the GPU code, which is a library of its own, so that the same program starts with and
// without CUDA.

#include <string>

#include "launcher/cuda/plugin.h"

namespace lockstep::launcher {

// Loads liblockstep_cuda.so once, from the program's folder or from ../lib/lockstep next to it.
// Returns null if that fails; then `why_not` has the reason, for the user.
const cuda::Plugin* load_cuda_plugin(std::string& why_not);

}  // namespace lockstep::launcher
