#pragma once
// Nodes that compute losses of classes.

#include "models/onnx/network.h"

namespace lockstep::onnx {

// SoftmaxCrossEntropyLoss or NegativeLogLikelihoodLoss: the scores of classes (N, C, ...) and the
// labels (N, ...).
bool is_loss_node(const Node& node);

// Whether the loss is one number for all elements, not one for each.
bool combines_samples(const Node& loss);

}  // namespace lockstep::onnx
