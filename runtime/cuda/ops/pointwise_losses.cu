#include "runtime/graph/ops/pointwise_losses.h"

#include <cmath>

#include "runtime/base/check.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/kernel_tools.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/loss_rows.h"
#include "runtime/cuda/plan/losses.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;  // a warp handles a row
constexpr int kRows = kThreads / kWarp;

struct Element {
  float loss, correct, gradient;
};

template <bool Squared>
__device__ __forceinline__ Element element_of(float x, float target) {
  if constexpr (Squared) {
    const float difference = x - target;
    return {difference * difference, 0, 2 * difference};
  } else {
    const float small = expf(-fabsf(x));  // at most 1, so nothing overflows
    const float loss = fmaxf(x, 0.0f) - x * target + log1pf(small);
    const float sigmoid = (x >= 0 ? 1.0f : small) / (1 + small);
    return {loss, (x > 0) == (target > 0.5f) ? 1.0f : 0.0f, sigmoid - target};
  }
}

template <bool Squared, bool Backward, typename T>
__global__ void __launch_bounds__(kThreads)
    pointwise_loss_kernel(graph::PointwiseLoss<T> op,
                          const graph::LaneContext* lane_context,
                          RowLoss* results) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kWarp;
  if (row >= op.rows) return;
  const int lane = threadIdx.x % kWarp;
  const bool counts = row < lane_context->valid_rows;
  const float gradient_scale = lane_context->gradient_scale;
  const auto outputs = static_cast<float>(op.outputs);
  float loss = 0, correct = 0, weight = 1;
  if constexpr (!Squared) {
    if (op.classes.weighted) {  // one output
      const float target = op.targets[row];
      weight = (1 - target) * op.classes.weights[0] + target * op.classes.weights[1];
    }
  }
  for (int64_t i = row * op.outputs + lane; i < (row + 1) * op.outputs; i += kWarp) {
    Element element = element_of<Squared>(to_float(op.predictions[i]), op.targets[i]);
    loss += element.loss;
    correct += element.correct;
    if constexpr (Backward) {
      const float gradient = counts ? weight * element.gradient * (gradient_scale / outputs) : 0;
      op.gradient[i] = round_to<T>(gradient);
    }
  }
  loss = weight * warp_reduce<Sum>(loss) / outputs;
  correct = warp_reduce<Sum>(correct) / outputs;
  if (lane == 0)
    results[row] = counts ? RowLoss{loss, correct, 0, weight} : RowLoss{0, kNotCounted};
}

template <bool Squared>
void run(const graph::OpCall& call) {
  by_type<graph::PointwiseLoss>(call, [&]<typename T>(const auto& op) {
    auto* const results = call.workspace<RowLoss>();
    launch({blocks_for(op.rows, kRows), kThreads, stream_of(call)},
           op.gradient != nullptr ? pointwise_loss_kernel<Squared, true, T>
                                  : pointwise_loss_kernel<Squared, false, T>,
           op,
           context_of(call).lane,
           results);
    sum_row_losses(results, op.rows, op.statistics, stream_of(call));
  });
}

constexpr exec::Implementation kImplementations[] = {
    exec::row<run<false>, pointwise_loss_workspace>(graph::OpKind::kBinaryCrossEntropy, "native"),
    exec::row<run<true>, pointwise_loss_workspace>(graph::OpKind::kMeanSquaredError, "native"),
};

}  // namespace

constinit const exec::Implementations kCudaPointwiseLosses = kImplementations;

}  // namespace lockstep::cuda
