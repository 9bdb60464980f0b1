#pragma once
// What CUDA libraries load at first use, loaded before memory is planned.

#include "runtime/cuda/recorded_work.h"
#include "runtime/cuda/stream.h"
#include "runtime/graph/graph.h"

namespace lockstep::cuda {

// Has the libraries that the ops of `graph` call, cuBLASLt and cuDNN, set themselves up, in its
// types, with small ops on memory that is given back, and CUDA's graphs with one that `recorder`
// makes, if there is one: most of what they load and keep in the GPU's memory is then there. cuDNN
// may be missing. Queued on `stream`, waited for. Throws Error.
void warm_up(const Graph& graph, bool tf32, Recorder* recorder, Stream stream);

}  // namespace lockstep::cuda
