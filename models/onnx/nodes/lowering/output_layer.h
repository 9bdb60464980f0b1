#pragma once
// The last nodes of a network that become part of its loss: the linear layer that computes logits
// of tokens, because the loss may compute only a part of the logits at a time, and a final softmax
// or sigmoid, which the loss includes.

#include <optional>
#include <vector>

#include "models/onnx/nodes/lowering/fusion_plan.h"
#include "models/onnx/nodes/lowering/storage.h"
#include "runtime/config/run_config.h"

namespace lockstep::onnx {

struct OutputLayer {
  int x = -1;                            // value (N, T, C)
  int weight = -1;                       // parameter
  Storage storage = Storage::kAsInFile;  // for the weight as (V, C)
  int bias = -1;                         // parameter (V); below 0: none
  std::vector<const Node*> nodes;        // that compute the layer
};

// If a linear layer computes the output and no node reads it, marks the layer's nodes as fused and
// returns the layer. Called before Lowering::run(). After that the weight may have another storage,
// because of another op.
std::optional<OutputLayer> take_output_layer(const Readers& readers, FusionPlan& plan, int output);

// If the output is a softmax or log-softmax (for BINARY_CROSS_ENTROPY: a sigmoid), returns its
// input, the logits, and marks the node as fused unless other nodes read the output. Otherwise
// returns the output. Called before Lowering::run().
int take_logits(const Readers& readers, FusionPlan& plan, int output, Loss loss);

}  // namespace lockstep::onnx
