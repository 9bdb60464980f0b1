#pragma once
// Networks with loss CONTRASTIVE: model.onnx.output is the vector of a sample's anchor, and
// model.onnx.losses name those of its partner and of a hard negative.

#include <vector>

#include "models/onnx/bind/data_inputs.h"
#include "models/onnx/nodes/lowering/lowering.h"

namespace lockstep::onnx {

// Throws ConfigError if the fields of model.onnx.losses do not fit.
void check_vector_fields(const OnnxConfig& config);

// Throws ConfigError if the outputs are not float (N, D), of one D, for `samples` samples.
void check_vector_outputs(const OnnxConfig& config,
                          const std::vector<const Value*>& outputs,
                          int64_t samples);

// Ends the graph of a network that is lowered: the loss or, in inference, the vectors of each
// sample, one after the other.
void append_comparison(Lowering& lowering, const DataInputs& data, const std::vector<int>& outputs);

}  // namespace lockstep::onnx
