#pragma once
// The objective of a network, from the config: its losses, or in inference the output that is kept.

#include <vector>

#include "models/onnx/bind/data_inputs.h"
#include "models/onnx/bind/network_inputs.h"
#include "models/onnx/nodes/lowering/lowering.h"
#include "runtime/config/model_traits.h"

namespace lockstep::onnx {

// The loss of the network; task SEQUENCE_VALUES has squared error unless the config has another.
Loss loss_of(const OnnxConfig& config);
// Whether targets are classes or tokens rather than values.
bool has_labels(const OnnxConfig& config);
// Whether targets are transcripts: loss CTC.
bool is_transcript(const OnnxConfig& config);
bool predicts_tokens(const OnnxConfig& config);
// The extents d1, ... of an output (N, O, d1, ...) with classes of pixels or other positions of a
// sample; otherwise empty.
Extents positions_of(const OnnxConfig& config, config::ModelInput input, const Extents& output);
config::TextTask text_task_of(const OnnxConfig& config);
// Whether samples are pieces of one stream of tokens, without documents.
bool is_stream(const OnnxConfig& config, const graph::GraphOptions& options);

// Throws ConfigError if the config's fields for the objective contradict each other.
void check_objective(const OnnxConfig& config);

// The number of classes, or of values of a sample, in an output.
int64_t output_count(const OnnxConfig& config, config::ModelInput input, const Value& output);

// Lowers the network, whose inputs are set, and ends the graph. `outputs` are the values with
// losses, in the order of outputs_of().
void append_objective(Lowering& lowering,
                      const OnnxConfig& config,
                      const DataInputs& data,
                      const std::vector<int>& outputs);

}  // namespace lockstep::onnx
