#pragma once
// The tensors that a network's inputs are, made of those that the loader fills.

#include <vector>

#include "models/diffusion_model.h"
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
  std::vector<Input> inputs;  // by Network::inputs
  bool of_tokens = false;
  TensorId documents = kNoTensor;  // (N, T) i32, of padding below 0; of text whose samples say so
  TensorId targets = kNoTensor;    // (N, T) i32 of what the next token is; none in inference
  DenoiserInputs noised = {};      // of networks that take noise off images
};

// Appends them, for a network that NetworkInputs::bind() has made. `ids`: what tokens are below, or of
// what takes noise off images the number of classes.
DataInputs append_data_inputs(GraphBuilder& builder,
                              const OnnxConfig& config,
                              const NetworkInputs& inputs,
                              const Network& network,
                              const ModelIo& io,
                              int64_t ids);

}  // namespace lockstep::onnx
