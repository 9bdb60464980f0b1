#pragma once
// A build without cuDNN.

namespace lockstep::cuda {

// Why the files *_missing.cc, which take the place of those that call cuDNN, refuse everything.
inline constexpr const char* kCudnnMissing =
    "this build has no cuDNN: cudnn-frontend was not found";

}  // namespace lockstep::cuda
