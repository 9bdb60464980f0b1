#pragma once
// Makes the tensors of a network's inputs from those that the loader fills.

#include <vector>

#include "models/diffusion_model.h"
#include "models/onnx/bind/network_inputs.h"
#include "models/registry.h"

namespace lockstep::onnx {

struct DataInputs {
  struct Input {
    TensorId tensor = kNoTensor;  // kNoTensor if it is constant or unused
    bool channels_last = false;
    int64_t limit = 0;  // if above 0, its elements are in [0, limit)
  };
  std::vector<Input> inputs;  // in the order of Network::inputs
  bool takes_tokens = false;
  TensorId documents = kNoTensor;      // (N, T) i32, below 0 for padding; if the samples have them
  TensorId targets = kNoTensor;        // (N, T) i32, the next tokens; kNoTensor in inference
  models::DenoiserInputs noised = {};  // for networks that remove noise from images
};

// Appends the ops that make the inputs. `network` comes from NetworkInputs::bind(). Tokens are
// below `ids`; for networks that remove noise from images it is the number of classes.
DataInputs append_data_inputs(graph::GraphBuilder& builder,
                              const OnnxConfig& config,
                              const NetworkInputs& inputs,
                              const Network& network,
                              const models::ModelIo& io,
                              int64_t ids);

}  // namespace lockstep::onnx
