#pragma once
// Times the algorithms of cuBLASLt and cuDNN, for execution.tune.

#include <functional>
#include <span>
#include <string>

#include "runtime/cuda/backend.h"
#include "runtime/graph/graph.h"

namespace lockstep::cuda {

// Times, for every matrix product and convolution of these graphs, the algorithms that the library
// offers, on operands of the real size and shape, and returns the text of a file with the fastest
// (AlgorithmChoices). Offered are only algorithms whose bits are the same in every run and whose
// workspace is as planned. A product that also applies GELU or ReLU, or sums the gradient of a
// bias, is compared with a product and a kernel of its own for that. Attention is not timed,
// because cuDNN does not tell which of its engines for it are deterministic.
// `beat` is called between requests. Allocates the memory of one request at a time, and frees it.
// Throws MemoryError, Error.
std::string time_algorithms(const BackendOptions& options,
                            std::span<const graph::Graph* const> graphs,
                            const std::function<void()>& beat);

}  // namespace lockstep::cuda
