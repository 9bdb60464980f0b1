#pragma once
// Outputs must have the same extents for any batch: similarities between samples, as many as there
// are samples, would be taken for classes.

#include <string>
#include <vector>

#include "models/onnx/network.h"
#include "runtime/base/error.h"

namespace lockstep::onnx {

// Thrown for outputs whose extents grow with the batch.
class OutputExtentsError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

// Compares these outputs of the network of `file`, bound to two different batches. Throws
// OutputExtentsError.
void require_same_extents(const std::string& file,
                          const std::vector<int>& outputs,
                          const Network& network,
                          const Network& other);

}  // namespace lockstep::onnx
