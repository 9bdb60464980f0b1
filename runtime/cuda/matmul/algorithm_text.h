#pragma once
// cuBLASLt's algorithms as text: "id=66 tile=20 stages=36 split=1 ...", from which the same version
// of the library makes the same algorithm again.

#include <cublasLt.h>

#include <string>

namespace lockstep::cuda {

// All attributes of the algorithm; empty if the library does not tell them.
std::string text_of(const cublasLtMatmulAlgo_t& algorithm);

// The types of the matrices and of the sums.
struct AlgorithmTypes {
  cublasComputeType_t compute;
  cudaDataType_t scale, a, b, out;
};

// Makes the algorithm of a text. Returns why there is none, or an empty string. The sums of a
// product that is split along k must be in an order that is fixed.
std::string make_algorithm(cublasLtHandle_t handle,
                           const AlgorithmTypes& types,
                           const std::string& text,
                           cublasLtMatmulAlgo_t& algorithm);

}  // namespace lockstep::cuda
