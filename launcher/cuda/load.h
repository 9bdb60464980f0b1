#pragma once
// The GPU code is a library of its own, so that one program starts with and without CUDA.

#include <string>

#include "launcher/cuda/plugin.h"

namespace lockstep {

// liblockstep_cuda.so, loaded once: beside the program, or in ../lib/lockstep from there. Null
// where it cannot be; then `why_not` says why, for the user.
const cuda::Plugin* load_cuda_plugin(std::string& why_not);

}  // namespace lockstep
