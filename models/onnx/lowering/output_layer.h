#pragma once
// The linear layer that computes a network's logits of tokens. Language models take it together with
// their loss, which may compute a part of the logits at a time.

#include <optional>
#include <vector>

#include "models/onnx/lowering/lowering.h"

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

}  // namespace lockstep::onnx
