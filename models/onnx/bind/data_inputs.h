#pragma once
// Makes the tensors of a network's inputs from those that the loader fills.

#include <optional>
#include <vector>

#include "models/diffusion_model.h"
#include "models/onnx/bind/network_inputs.h"
#include "models/onnx/bind/targets.h"
#include "models/registry.h"

namespace lockstep::onnx {

struct DataInputs {
  struct Input {
    TensorId tensor = kNoTensor;  // kNoTensor if it is constant or unused
    bool channels_last = false;
    int64_t limit = 0;  // if above 0, its elements are in [0, limit)
  };
  std::vector<Input> inputs;  // in the order of Network::inputs
  config::ModelInput kind = config::ModelInput::kFeatures;
  TensorId documents = kNoTensor;  // (N, T) i32, below 0 for padding; if the samples have them
  TensorId targets = kNoTensor;    // (N, T) i32, the next tokens; kNoTensor in inference
  // For networks with several targets, or targets as inputs; none if they are not needed.
  std::optional<TargetRecord> record = std::nullopt;
  models::DenoiserInputs noised = {};  // for networks that remove noise from images
};

// Appends the ops that make the inputs. `network` comes from NetworkInputs::bind(). Tokens are
// below `ids`; for networks that remove noise from images it is the number of classes. Inputs with
// the meaning TARGET have no tensor if `targets` is false.
DataInputs append_data_inputs(graph::GraphBuilder& builder,
                              const OpenedFile& opened,
                              const OnnxConfig& config,
                              const NetworkInputs& inputs,
                              const Network& network,
                              const models::ModelIo& io,
                              int64_t ids,
                              bool targets);

}  // namespace lockstep::onnx
