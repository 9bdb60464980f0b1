#pragma once
// What a network is trained for, as the config says, and the ops behind it: its losses, or the output
// that inference keeps.

#include <vector>

#include "models/onnx/data_inputs.h"
#include "models/onnx/lowering/lowering.h"
#include "models/onnx/network_inputs.h"
#include "runtime/config/model_traits.h"

namespace lockstep::onnx {

// Whether targets are classes or tokens, and not values.
bool has_labels(const OnnxConfig& config);
bool predicts_tokens(const OnnxConfig& config);
TextTask text_task_of(const OnnxConfig& config);
// Whether samples are tokens alone.
bool is_stream(const OnnxConfig& config, const GraphOptions& options);

// Throws ConfigError where fields of the config that say what a network is trained for do not go
// together.
void check_goal(const OnnxConfig& config);

// Classes, or values of a sample, that an output is of.
int64_t output_count(const OnnxConfig& config, const Value& output);

// Throws ConfigError if an output that the config names is not of the form that its loss takes. `network`: of so many
// samples.
void check_outputs(const OnnxConfig& config,
                   const NetworkInputs& inputs,
                   const Network& network,
                   int64_t samples);

// Lowers the network, of which the inputs are set, and ends the graph. `outputs`: the values that the
// losses are of, in the order of outputs_of().
void append_to_goal(Lowering& lowering,
                    const OnnxConfig& config,
                    const DataInputs& data,
                    const std::vector<int>& outputs);

}  // namespace lockstep::onnx
