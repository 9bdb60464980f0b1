#pragma once
// Losses of each output separately; a row's loss is their mean. d = x - t.
//   binary_cross_entropy, on logits: max(x, 0) - x t + log(1 + e^-|x|), which does not overflow;
//   its gradient is sigmoid(x) - t. An output is correct if x > 0 agrees with t > 0.5. With weights
//   w of two classes, loss, gradient and count are multiplied by (1 - t) w[0] + t w[1]. With a
//   weight p of yes (torch.nn.BCEWithLogitsLoss's pos_weight): (1 - t) max(x, 0) + p t max(-x, 0) +
//   (1 - t + p t) log(1 + e^-|x|); its gradient is 1 - t - (1 - t + p t) (1 - sigmoid(x)).
//   mean_squared_error: d^2; its gradient is 2 d. No output counts as correct, nor below.
//   mean_absolute_error: |d|; its gradient is the sign of d, 0 if d is 0 (torch.nn.L1Loss).
//   huber: d^2 / 2 if |d| < delta, otherwise delta (|d| - delta / 2); its gradient is d, at most
//   delta and at least -delta (torch.nn.HuberLoss; SmoothL1Loss is this divided by delta = beta).
// A target is a probability or a value, (rows, O) f32. Operands: LossIn and LossOut (operands.h).

#include <cstdint>
#include <vector>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

struct BinaryCrossEntropyAttributes {
  float weights[2] = {1, 1};        // of classes 0 and 1
  bool weighted = false;            // if so, there is one output, and no pos_weight
  std::vector<float> pos_weight{};  // (outputs) above 0, or none
};

struct HuberAttributes {
  float delta = 1;  // above 0
};

namespace ops {

// End a training or evaluation graph. Weights of classes and of yes are those of the builder's
// options.
void binary_cross_entropy(GraphBuilder& builder, TensorId logits, TensorId targets);
void mean_squared_error(GraphBuilder& builder, TensorId predictions, TensorId targets);
void mean_absolute_error(GraphBuilder& builder, TensorId predictions, TensorId targets);
void huber(GraphBuilder& builder, TensorId predictions, TensorId targets, float delta);

}  // namespace ops

template <typename T>
struct PointwiseLoss {
  const OpCall& call = OpCall::none();
  OpKind kind = call.kind();
  int64_t rows = call.input_shape(LossIn::kPrediction).rows();
  int64_t outputs = call.input_shape(LossIn::kPrediction).columns();
  const T* predictions = call.input<T>(LossIn::kPrediction);       // (rows, outputs)
  const Wide<T>* targets = call.input<Wide<T>>(LossIn::kTargets);  // (rows, outputs)
  double* statistics = call.output<double>(LossOut::kStatistics);  // (4)
  // (rows, outputs), over the predictions; null if not wanted. Rows that do not count get 0
  T* gradient = call.output<T>(LossOut::kGradient);
  float delta = kind == OpKind::kHuber ? call.attributes<HuberAttributes>().delta : 1;
  const BinaryCrossEntropyAttributes* binary =
      kind == OpKind::kBinaryCrossEntropy ? &call.attributes<BinaryCrossEntropyAttributes>()
                                          : nullptr;
  // The weights of classes 0 and 1; `weighted`: if they are given.
  bool weighted = binary != nullptr && binary->weighted;
  float class_weights[2] = {weighted ? binary->weights[0] : 1, weighted ? binary->weights[1] : 1};
  // (outputs) on the host until a device has its own; or null
  const float* pos_weight =
      binary == nullptr || binary->pos_weight.empty() ? nullptr : binary->pos_weight.data();
};

}  // namespace lockstep::graph
