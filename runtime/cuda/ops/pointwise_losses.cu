#include "runtime/cuda/ops/pointwise_losses.h"

#include <cmath>

#include "runtime/cuda/kernel_tools.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;  // a warp works on a row
constexpr int kRows = kThreads / kWarp;

struct Element {
  float loss, correct, gradient;
};

template <PointwiseLossKind kind>
__device__ __forceinline__ Element element_of(float x, float target) {
  if constexpr (kind == PointwiseLossKind::kMeanSquaredError) {
    const float difference = x - target;
    return {difference * difference, 0, 2 * difference};
  } else {
    const float small = expf(-fabsf(x));  // at most 1: nothing overflows
    const float loss = fmaxf(x, 0.0f) - x * target + log1pf(small);
    const float sigmoid = (x >= 0 ? 1.0f : small) / (1 + small);
    return {loss, (x > 0) == (target > 0.5f) ? 1.0f : 0.0f, sigmoid - target};
  }
}

template <PointwiseLossKind kind, bool Backward, typename T>
__global__ void __launch_bounds__(kThreads)
    pointwise_loss_kernel(PointwiseLoss op, T* predictions) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kWarp;
  if (row >= op.rows) return;
  const int lane = threadIdx.x % kWarp;
  const bool counts = row < op.lane->valid_rows;
  const float gradient_scale = op.lane->gradient_scale;
  const auto outputs = static_cast<float>(op.outputs);
  float loss = 0, correct = 0;
  for (int64_t i = row * op.outputs + lane; i < (row + 1) * op.outputs; i += kWarp) {
    Element element = element_of<kind>(to_float(predictions[i]), op.targets[i]);
    loss += element.loss;
    correct += element.correct;
    if constexpr (Backward) {
      const float gradient = counts ? element.gradient * (gradient_scale / outputs) : 0;
      predictions[i] = round_to<T>(gradient);
    }
  }
  loss = warp_reduce<Sum>(loss) / outputs;
  correct = warp_reduce<Sum>(correct) / outputs;
  if (lane == 0) op.workspace[row] = counts ? RowLoss{loss, correct} : RowLoss{0, kNotCounted};
}

template <bool Backward, typename T>
void start(const PointwiseLoss& op, T* predictions, Stream stream) {
  using enum PointwiseLossKind;
  const auto kernel = op.kind == kMeanSquaredError
                          ? pointwise_loss_kernel<kMeanSquaredError, Backward, T>
                          : pointwise_loss_kernel<kBinaryCrossEntropy, Backward, T>;
  launch({{blocks_for(op.rows, kRows), 1, 1}, {kThreads, 1, 1}, stream}, kernel, op, predictions);
  sum_row_losses(op.workspace, op.rows, op.statistics, stream);
}

}  // namespace

template <typename T>
void pointwise_loss_forward(const PointwiseLoss& op, const T* predictions, Stream stream) {
  start<false>(op, const_cast<T*>(predictions), stream);
}

template <typename T>
void pointwise_loss_forward_backward(const PointwiseLoss& op, T* predictions, Stream stream) {
  start<true>(op, predictions, stream);
}

template void pointwise_loss_forward(const PointwiseLoss&, const float*, Stream);
template void pointwise_loss_forward(const PointwiseLoss&, const BFloat16*, Stream);
template void pointwise_loss_forward(const PointwiseLoss&, const Float16*, Stream);
template void pointwise_loss_forward_backward(const PointwiseLoss&, float*, Stream);
template void pointwise_loss_forward_backward(const PointwiseLoss&, BFloat16*, Stream);
template void pointwise_loss_forward_backward(const PointwiseLoss&, Float16*, Stream);

}  // namespace lockstep::cuda
