#pragma once

#include "runtime/cuda/recorded_work.h"
#include "runtime/cuda/stream.h"
#include "runtime/graph/graph.h"

namespace lockstep::cuda {

// Has cuBLASLt, cuDNN and CUDA's graphs set themselves up for the kinds of ops that `graph` has, in
// its types, with small ops on memory that is given back: what these libraries load and keep in the
// GPU's memory is then there. cuDNN may be missing. Queued on `stream`, waited for. Throws Error.
void warm_up(const Graph& graph, bool tf32, Recorder& recorder, Stream stream);

}  // namespace lockstep::cuda
