#pragma once
// Loads what CUDA libraries load at first use, before memory is planned.

#include "runtime/cuda/recorded_work.h"
#include "runtime/cuda/stream.h"
#include "runtime/graph/graph.h"

namespace lockstep::cuda {

// Initialises the libraries that the ops of `graph` call, cuBLASLt and cuDNN, by small ops in the
// graph's types on memory that is freed again; and CUDA graphs by one that `recorder` makes, unless
// it is null. Afterwards, most of what these load and keep in the GPU's memory is there. cuDNN may
// be missing. Queues the work on `stream` and waits for it. Throws Error.
void warm_up(const graph::Graph& graph, bool tf32, Recorder* recorder, Stream stream);

}  // namespace lockstep::cuda
