#pragma once
// A build without cuDNN.

namespace lockstep::cuda {

// The reason given by the *_missing.cc files, which replace those that call cuDNN.
inline constexpr const char* kCudnnMissing =
    "this build has no cuDNN: cudnn-frontend was not found";

}  // namespace lockstep::cuda
