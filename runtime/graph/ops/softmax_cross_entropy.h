#pragma once
// softmax_cross_entropy: the loss of each row, summed.
//   inputs  logits (rows, O), target: class (rows) i32
//   outputs statistics (4) f64: sum of the rows' losses, rows counted, rows predicted correctly, 0;
//           in training also d_logits = gradient of the loss SUM times
//           LaneContext::gradient_scale, over the logits
// Where LaneContext::mix is below 1 it has mixtures of two targets. A loss is the root of
// differentiation and needs no backward op: the gradient comes out of the forward pass.

#include <cstdint>

#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

struct SoftmaxCrossEntropyAttributes {
  float label_smoothing = 0;
  int32_t ignore_index = -1;  // targets equal to it do not count
};

namespace ops {

// Ends a training or evaluation graph. targets: (rows) i32. The rows of logits may become padded.
void softmax_cross_entropy(GraphBuilder& builder,
                           TensorId logits,
                           TensorId targets,
                           float label_smoothing);

}  // namespace ops
}  // namespace lockstep
