#pragma once
// preference_loss: of each pair's two scores, chosen and rejected, the chosen one should be larger.
//   z = beta ((chosen - rejected) - (reference chosen - reference rejected))
//   loss = -(1 - s) log sigmoid(z) - s log sigmoid(-z)
// With sums of log probabilities of a policy and of a reference, this is DPO (Rafailov et al.
// 2023), and with label smoothing s, conservative DPO (Mitchell 2023): s is the share of pairs
// whose order is wrong. Without a reference, beta 1 and s 0, it is the loss of Bradley and Terry.
// Operands: LossIn and LossOut (operands.h); the targets are the reference's scores, or absent.
// They get no gradient. The statistics are: sum of the pairs' losses; number of pairs; pairs with z
// above 0.
// A pair from LaneContext::valid_rows on does not count.
// A loss is the root of differentiation and has no backward op: the gradient is computed in the
// forward pass.

#include <cstdint>

#include "runtime/base/host_device.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

struct PreferenceLossAttributes {
  float beta = 1;             // above 0
  float label_smoothing = 0;  // in [0, 0.5)
};

namespace ops {

// Ends a training or evaluation graph. scores (pairs, 2); reference (pairs, 2) f32 or kNoTensor.
void preference_loss(GraphBuilder& builder,
                     TensorId scores,
                     TensorId reference,
                     const PreferenceLossAttributes& attributes);

}  // namespace ops

template <typename T>
struct PreferenceLoss {
  const OpCall& call = OpCall::none();
  int64_t pairs = call.input_shape(LossIn::kPrediction).rows();
  PreferenceLossAttributes attributes = call.attributes<PreferenceLossAttributes>();
  const T* scores = call.input<T>(LossIn::kPrediction);              // (pairs, 2)
  const Wide<T>* reference = call.input<Wide<T>>(LossIn::kTargets);  // (pairs, 2) or null
  double* statistics = call.output<double>(LossOut::kStatistics);    // (4)
  // (pairs, 2), over the scores; null if not wanted. Pairs that do not count get 0
  T* gradient = call.output<T>(LossOut::kGradient);
};

// The loss of a pair, and its derivative by z.
template <typename F>
struct PairLoss {
  F loss, d_z;

  // From e = exp(-|z|), which is at most 1, and log(1 + e), so that nothing overflows.
  LOCKSTEP_HD static PairLoss of(F z, F e, F log1p_e, F smoothing) {
    const F of_chosen = (z < 0 ? -z : F{0}) + log1p_e;  // -log sigmoid(z)
    const F of_rejected = (z > 0 ? z : F{0}) + log1p_e;
    const F sigmoid = (z < 0 ? e : F{1}) / (1 + e), other = (z < 0 ? F{1} : e) / (1 + e);
    return {(1 - smoothing) * of_chosen + smoothing * of_rejected,
            smoothing * sigmoid - (1 - smoothing) * other};
  }
};

}  // namespace lockstep::graph
