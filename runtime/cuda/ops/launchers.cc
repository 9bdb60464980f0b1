// Launchers on own kernels: each unpacks an op into the call of its kernel, for the type that the
// op's tensors store. Inputs and outputs are numbered as graph/ops/<op>.h documents.
#include "runtime/base/error.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/pointwise_losses.h"
#include "runtime/cuda/ops/softmax_cross_entropy.h"
#include "runtime/graph/ops/softmax_cross_entropy.h"

namespace lockstep::cuda {
namespace {

// The gradient, where there is one, lies over the prediction.
template <typename T>
T* gradient_over_prediction(const OpCall& call) {
  LOCKSTEP_CHECK(call.output<T>(1) == call.input<T>(0), "the loss works in place ");
  return call.output<T>(1);
}

void run_pointwise_loss(const OpCall& call, PointwiseLossKind kind) {
  const Shape& predictions = call.input_shape(0);
  const PointwiseLoss loss = {.kind = kind,
                              .rows = predictions.rows(),
                              .outputs = predictions.columns(),
                              .lane = context_of(call).lane,
                              .targets = call.input<float>(1),
                              .workspace = reinterpret_cast<RowLoss*>(call.workspace()),
                              .statistics = call.output<double>(0)};
  by_type(call.input_dtype(0), [&]<typename T>() {
    if (call.training()) {
      pointwise_loss_forward_backward(loss, gradient_over_prediction<T>(call), stream_of(call));
    } else {
      pointwise_loss_forward(loss, call.input<T>(0), stream_of(call));
    }
  });
}

size_t loss_workspace(const OpCall& op) { return loss_workspace_bytes(op.input_shape(0).rows()); }

void run_softmax_cross_entropy(const OpCall& call) {
  const Shape& logits = call.input_shape(0);
  by_type(call.input_dtype(0), [&]<typename T>() {
    const SoftmaxCrossEntropy<T> loss = {
        .rows = logits.rows(),
        .classes = logits.columns(),
        .stride = call.input_stride(0),
        .lane = context_of(call).lane,
        .label_smoothing = call.attributes<SoftmaxCrossEntropyAttributes>().label_smoothing,
        .targets = call.input<int32_t>(1),
        .workspace = reinterpret_cast<RowLoss*>(call.workspace()),
        .statistics = call.output<double>(0)};
    if (call.training()) {
      softmax_cross_entropy_forward_backward(
          loss, gradient_over_prediction<T>(call), stream_of(call));
    } else {
      softmax_cross_entropy_forward(loss, call.input<T>(0), stream_of(call));
    }
  });
}

void run_binary_cross_entropy(const OpCall& call) {
  run_pointwise_loss(call, PointwiseLossKind::kBinaryCrossEntropy);
}

void run_mean_squared_error(const OpCall& call) {
  run_pointwise_loss(call, PointwiseLossKind::kMeanSquaredError);
}

constexpr Implementation kSoftmaxCrossEntropyRows[] = {
    {OpKind::kSoftmaxCrossEntropy, "own", run_softmax_cross_entropy, loss_workspace},
};
constexpr Implementation kPointwiseLossesRows[] = {
    {OpKind::kBinaryCrossEntropy, "own", run_binary_cross_entropy, loss_workspace},
    {OpKind::kMeanSquaredError, "own", run_mean_squared_error, loss_workspace},
};

}  // namespace

constinit const Implementations kCudaSoftmaxCrossEntropy = kSoftmaxCrossEntropyRows;
constinit const Implementations kCudaPointwiseLosses = kPointwiseLossesRows;

}  // namespace lockstep::cuda
