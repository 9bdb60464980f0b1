#pragma once
// The tensors that a network's inputs are, made of those that the loader fills.

#include <vector>

#include "models/onnx/lowering/lowering.h"
#include "models/onnx/network_inputs.h"
#include "models/registry.h"

namespace lockstep::onnx {

struct DataInputs {
  struct Input {
    TensorId tensor = kNoTensor;  // kNoTensor where it is known, or nothing reads it
    bool channels_last = false;
    int64_t limit = 0;  // above 0: its elements lie in [0, limit)
  };
  std::vector<Input> inputs;     // by Network::inputs
  TensorId targets = kNoTensor;  // (N, T) i32 of what the next token is; none in inference
};

// Appends them, for a network that NetworkInputs::bind() has made. `vocabulary`: what tokens are
// below. `next_token`: samples are those of causal language models (runtime/data/text/text_samples.h).
DataInputs append_data_inputs(GraphBuilder& builder,
                              const NetworkInputs& inputs,
                              const Network& network,
                              const ModelIo& io,
                              bool next_token,
                              int64_t vocabulary);

}  // namespace lockstep::onnx
