#pragma once
// Networks with loss CTC: frames (N, T, F) in, a score of each class for each frame (N, T', C) out.

#include "models/onnx/bind/network_inputs.h"

namespace lockstep::onnx {

// Throws ConfigError unless the network, bound for `samples` samples, has one input of frames, and
// `output` has scores that the loss takes.
void check_transcript_output(const OnnxConfig& config,
                             const NetworkInputs& inputs,
                             const Network& network,
                             const Value& output,
                             int64_t samples);

}  // namespace lockstep::onnx
