#pragma once
// The requests that AlgorithmChoices has algorithms for, as text. Requests that differ have texts
// that differ.

#include <string>

#include "runtime/cuda/algorithm_choices.h"

namespace lockstep::cuda {

struct CudnnConv2dKey;
struct Product;

std::string request_of(const Product& product);
std::string request_of(const CudnnConv2dKey& key);

// Makes a library, Matmul or CudnnConv2d, use the algorithm that `choices` has for the request.
// Returns why the request is not to run, or an empty string. Throws ConfigError if there is no
// choice or the library refuses it.
template <typename Library, typename Key>
std::string use_choice(const AlgorithmChoices& choices, Library& library, const Key& key) {
  const std::string request = request_of(key);
  const std::string& algorithm = choices.at(request).algorithm;
  if (algorithm == kNoAlgorithm) return "by the file of execution.tune, the library has none";
  if (algorithm == kSeparateKernels)
    return "by the file of execution.tune, separate kernels are faster";
  const std::string refusal = library.use(key, algorithm);
  if (!refusal.empty()) choices.refuse(request, refusal);
  return "";
}

}  // namespace lockstep::cuda
