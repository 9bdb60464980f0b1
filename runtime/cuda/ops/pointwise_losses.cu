#include "runtime/graph/ops/pointwise_losses.h"

#include <cmath>

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/loss_row_kernel.h"
#include "runtime/cuda/plan/losses.h"

namespace lockstep::cuda {
namespace {

struct Element {
  float loss, correct, gradient;
};

using graph::OpKind;

// `positive`: the weight of yes, if `Positive`.
template <OpKind Kind, bool Positive>
__device__ __forceinline__ Element element_of(float x, float target, float delta, float positive) {
  const float difference = x - target, distance = fabsf(difference);
  if constexpr (Kind == OpKind::kMeanSquaredError) {
    return {difference * difference, 0, 2 * difference};
  } else if constexpr (Kind == OpKind::kMeanAbsoluteError) {
    return {distance, 0, difference > 0 ? 1 : difference < 0 ? -1 : difference};
  } else if constexpr (Kind == OpKind::kHuber) {
    const float slope = difference > delta ? delta : difference < -delta ? -delta : difference;
    return {distance < delta ? 0.5f * distance * distance : delta * (distance - 0.5f * delta),
            0,
            slope};
  } else if constexpr (Positive) {
    const float small = expf(-fabsf(x));
    const float no = 1 - target, yes = positive * target, weight = no + yes;
    const float rest = (x >= 0 ? small : 1.0f) / (1 + small);  // 1 - sigmoid(x)
    return {no * fmaxf(x, 0.0f) + yes * fmaxf(-x, 0.0f) + weight * log1pf(small),
            (x > 0) == (target > 0.5f) ? 1.0f : 0.0f,
            no - weight * rest};
  } else {
    const float small = expf(-fabsf(x));  // at most 1, so nothing overflows
    const float loss = fmaxf(x, 0.0f) - x * target + log1pf(small);
    const float sigmoid = (x >= 0 ? 1.0f : small) / (1 + small);
    return {loss, (x > 0) == (target > 0.5f) ? 1.0f : 0.0f, sigmoid - target};
  }
}

template <OpKind Kind, bool Positive, bool Backward, typename T>
struct PointwiseLossRow {
  graph::PointwiseLoss<T> op;

  __device__ RowLoss operator()(int64_t row, int lane, bool counts, float gradient_scale) const {
    const auto outputs = static_cast<float>(op.outputs);
    float loss = 0, correct = 0, weight = 1;
    if constexpr (Kind == OpKind::kBinaryCrossEntropy) {
      if (op.weighted) {  // one output
        const float target = op.targets[row];
        weight = (1 - target) * op.class_weights[0] + target * op.class_weights[1];
      }
    }
    for (int64_t column = lane; column < op.outputs; column += kWarp) {
      const int64_t i = row * op.outputs + column;
      const float positive = Positive ? op.pos_weight[column] : 1;
      const Element element = element_of<Kind, Positive>(
          to_float(op.predictions[i]), op.targets[i], op.delta, positive);
      loss += element.loss;
      correct += element.correct;
      if constexpr (Backward) {
        const float gradient = counts ? weight * element.gradient * (gradient_scale / outputs) : 0;
        op.gradient[i] = round_to<T>(gradient);
      }
    }
    return {
        weight * warp_reduce<Sum>(loss) / outputs, warp_reduce<Sum>(correct) / outputs, 0, weight};
  }
};

template <OpKind Kind, bool Positive, typename T>
void start(const graph::PointwiseLoss<T>& op, const graph::OpCall& call) {
  op.gradient != nullptr ? run_loss_rows(call, PointwiseLossRow<Kind, Positive, true, T>{op})
                         : run_loss_rows(call, PointwiseLossRow<Kind, Positive, false, T>{op});
}

template <OpKind Kind>
void run(const graph::OpCall& call) {
  by_type(call.input_dtype(graph::LossIn::kPrediction), [&]<typename T>() {
    graph::PointwiseLoss<T> op{call};
    if constexpr (Kind == OpKind::kBinaryCrossEntropy) {
      if (op.pos_weight != nullptr) {
        auto* const weights = reinterpret_cast<float*>(call.workspace<RowLoss>() + op.rows);
        copy_weights(op.pos_weight, op.outputs, weights, stream_of(call));
        op.pos_weight = weights;
        return start<Kind, true>(op, call);
      }
    }
    start<Kind, false>(op, call);
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run<OpKind::kBinaryCrossEntropy>, pointwise_loss_workspace>(
        OpKind::kBinaryCrossEntropy, "native"),
    exec::row<run<OpKind::kMeanSquaredError>, pointwise_loss_workspace>(OpKind::kMeanSquaredError,
                                                                        "native"),
    exec::row<run<OpKind::kMeanAbsoluteError>, pointwise_loss_workspace>(OpKind::kMeanAbsoluteError,
                                                                         "native"),
    exec::row<run<OpKind::kHuber>, pointwise_loss_workspace>(OpKind::kHuber, "native"),
};

}  // namespace

constinit const exec::Implementations kCudaPointwiseLosses = kRows;

}  // namespace lockstep::cuda
