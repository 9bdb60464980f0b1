#pragma once
// Whether the outputs of a network have the forms that their losses take.

#include <cstdint>
#include <vector>

#include "models/onnx/bind/network_inputs.h"
#include "models/onnx/network.h"

namespace lockstep::onnx {

// Throws ConfigError if an output that the config names does not have the form that its loss takes.
// `network` is bound for `samples` samples.
void check_outputs(const OnnxConfig& config,
                   const NetworkInputs& inputs,
                   const Network& network,
                   int64_t samples);

// Throws ConfigError if an output has classes of pixels, but another height or width than the
// network's images, with which the targets have their size in common.
void check_sizes_of_pixels(const OnnxConfig& config,
                           const NetworkInputs& inputs,
                           const Network& network,
                           const std::vector<int>& outputs);

}  // namespace lockstep::onnx
