#pragma once

#include <memory>

#include "runtime/cuda/stream.h"
#include "runtime/exec/backend.h"

namespace lockstep::cuda {

// Repeated work as a CUDA graph: run as it is the first time, when libraries set themselves up;
// recorded the second time; replayed from then on.
std::unique_ptr<RepeatedWork> make_recorded_work(Stream stream);

}  // namespace lockstep::cuda
