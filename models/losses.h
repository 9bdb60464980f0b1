#pragma once
// The built-in losses of models.mlp and model.onnx.

#include "runtime/config/run_config.h"
#include "runtime/graph/builder.h"

namespace lockstep::models {

// The config's fields for a loss.
struct LossOptions {
  Loss loss = Loss::kSoftmaxCrossEntropy;
  float label_smoothing = 0;  // used in training alone
  float huber_delta = 1;
};

// Ends a training or evaluation graph with a loss, or adds one to several. Softmax cross-entropy
// takes targets (rows) i32, others (rows, columns) f32, of as many columns as `output` has. Losses
// that are not of this form (CTC, CONTRASTIVE, OUTPUT) must not come here.
void append_loss(graph::GraphBuilder& builder,
                 const LossOptions& options,
                 TensorId output,
                 TensorId targets);

// Whether label_smoothing applies to a loss.
bool smooths_labels(Loss loss);

}  // namespace lockstep::models
