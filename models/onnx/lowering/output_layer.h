#pragma once
// What of a network's end is part of its loss: the linear layer that computes logits of tokens, which
// language models take together with their loss, as that may compute a part of the logits at a time;
// and a softmax or sigmoid of the logits, which the loss has in it.

#include <optional>
#include <vector>

#include "models/onnx/lowering/lowering.h"
#include "runtime/config/run_config.h"

namespace lockstep::onnx {

struct OutputLayer {
  int x = -1;                            // value (N, T, C)
  int weight = -1;                       // parameter
  Storage storage = Storage::kAsInFile;  // as (V, C)
  int bias = -1;                         // parameter (V), or below 0
  std::vector<const Node*> nodes;        // that compute it
};

// Where a layer computes the output and no node reads that: passes over its nodes. Before
// Lowering::run(), after which the weight may be one that another op has in another way.
std::optional<OutputLayer> take_output_layer(Lowering& lowering, int output);

// The logits of an output that is their softmax, its logarithm or, for BINARY_CROSS_ENTROPY, their
// sigmoid; passes over that node where nothing else reads it. Any other output is its own logits.
// Before Lowering::run().
int take_logits(Lowering& lowering, int output, Loss loss);

}  // namespace lockstep::onnx
