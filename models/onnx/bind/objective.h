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
// Whether an output (N, C, H, W) has classes of pixels.
bool predicts_pixels(const OnnxConfig& config, const Extents& output);
config::TextTask text_task_of(const OnnxConfig& config);
// Whether samples are pieces of one stream of tokens, without documents.
bool is_stream(const OnnxConfig& config, const graph::GraphOptions& options);

// Throws ConfigError if the config's fields for the objective contradict each other.
void check_objective(const OnnxConfig& config);

// The number of classes, or of values of a sample, in an output.
int64_t output_count(const OnnxConfig& config, const Value& output);

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

// Lowers the network, whose inputs are set, and ends the graph. `outputs` are the values with
// losses, in the order of outputs_of().
void append_objective(Lowering& lowering,
                      const OnnxConfig& config,
                      const DataInputs& data,
                      const std::vector<int>& outputs);

}  // namespace lockstep::onnx
