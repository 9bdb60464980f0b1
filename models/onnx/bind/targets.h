#pragma once
// The targets of a network that computes its own loss (model.onnx.loss OUTPUT), compares vectors
// (CONTRASTIVE), or whose heads have targets of their own: what they must be, and how the graph
// takes them out of the record of a sample (config::TargetPart).

#include <vector>

#include "models/onnx/bind/network_inputs.h"
#include "models/onnx/nodes/lowering/lowering.h"
#include "models/registry.h"
#include "runtime/config/model_traits.h"

namespace lockstep::onnx {

bool computes_loss(const OnnxConfig& config);
// Whether the outputs are vectors with loss CONTRASTIVE.
bool compares_vectors(const OnnxConfig& config);
// Whether a sample's target is a record of parts.
bool has_parts(const OnnxConfig& config, const NetworkInputs& inputs);

// The config of a network whose output and loss are those that the metrics are about: of the first
// prediction if the network computes its loss, otherwise `config` itself.
OnnxConfig scored(const OnnxConfig& config);
// The config of a network that has only this output, with its loss: 0 is model.onnx.output, k the
// k-th of model.onnx.losses.
OnnxConfig of_head(const OnnxConfig& config, size_t index);

// What the network asks for, in the order of a record: first the target of the metrics. Empty: one
// target without a name.
std::vector<config::TargetPart> asked_targets(const OpenedFile& opened,
                                              const OnnxConfig& config,
                                              const NetworkInputs& inputs,
                                              const Network& network);

// The record of a batch, and its parts as tensors. Borrows the builder.
class TargetRecord {
 public:
  // Appends the graph's input. `found`: the parts of the data, ModelIo::targets.
  TargetRecord(graph::GraphBuilder& builder,
               std::vector<config::TargetPart> asked,
               const std::vector<config::TargetPart>& found,
               int64_t samples);

  // What the data have for the k-th of the parts that the network asks for.
  const config::TargetPart& part(size_t index) const;
  // All parts, (N, elements) i32.
  TensorId tensor() const { return record_; }
  // Part `index` with these extents (N, ...): i32 labels or f32 values. Throws ConfigError if the
  // data have other extents, or for take_as() the other type.
  TensorId take(size_t index, const std::string& name, const Shape& shape) const;
  TensorId take_as(DType type, size_t index, const std::string& name, const Shape& shape) const;

 private:
  graph::GraphBuilder* builder_;
  std::vector<config::TargetPart> asked_, found_;
  TensorId record_ = kNoTensor;
};

// `numbers` (i32 or f32) in the type of the file's input: integers, which must be i32, stay so;
// others get the compute type.
TensorId as_input(graph::GraphBuilder& builder, const Value& input, TensorId numbers);

// The network with these outputs, values of it, and without nodes that they do not need.
Network without_other_nodes(const Network& network, std::vector<int> outputs);

// The index in asked_targets() of the target of an input with the meaning TARGET; of head `index`,
// from 0, as for of_head().
size_t part_of_input(const OnnxConfig& config, const NetworkInputs& inputs, size_t input);
size_t part_of_head(const OnnxConfig& config, size_t index);

}  // namespace lockstep::onnx
