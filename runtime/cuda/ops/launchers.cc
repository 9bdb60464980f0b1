// Launchers on own kernels: each unpacks an op into the call of its kernel, for the type that the
// op's tensors store. Inputs and outputs are numbered as graph/ops/<op>.cc documents.
#include "runtime/cuda/ops/launchers.h"

#include "runtime/base/rng.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/activations.h"
#include "runtime/cuda/ops/dropout.h"
#include "runtime/cuda/ops/elementwise.h"
#include "runtime/cuda/ops/embedding.h"
#include "runtime/cuda/ops/layer_norm.h"
#include "runtime/cuda/ops/pointwise_losses.h"
#include "runtime/cuda/ops/softmax_cross_entropy.h"
#include "runtime/cuda/ops/token_sort.h"

namespace lockstep::cuda {
namespace {

const LaunchContext& context_of(const OpCall& call) { return call.device<LaunchContext>(); }

constexpr size_t kAlignment = 256;
size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

EmbeddingSizes embedding_sizes(const Shape& ids, const Shape& token) {
  return {ids[0], ids[1], token[1], token[0]};
}

// Where the parts of the embedding's workspace lie.
struct SortedTokens {
  explicit SortedTokens(const Shape& ids)
      : count(ids.elements()),
        places(aligned(static_cast<size_t>(count) * sizeof(int32_t))),
        rest(2 * places) {}
  int64_t count;
  size_t places, rest;  // bytes before them
};

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
      pointwise_loss_forward_backward(
          loss, gradient_over_prediction<T>(call), context_of(call).stream);
    } else {
      pointwise_loss_forward(loss, call.input<T>(0), context_of(call).stream);
    }
  });
}

}  // namespace

void run_activation(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    activation_forward<T>(call.attributes<ActivationAttributes>().activation,
                          call.input<T>(0),
                          call.output<T>(0),
                          call.input_shape(0).elements(),
                          context_of(call).stream);
  });
}

void run_activation_backward(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    activation_backward<T>(call.attributes<ActivationAttributes>().activation,
                           call.input<T>(0),
                           call.input<T>(1),
                           call.output<T>(0),
                           call.input_shape(0).elements(),
                           context_of(call).stream);
  });
}

void run_embedding(const OpCall& call) {
  by_type(call.input_dtype(1), [&]<typename T>() {
    embedding_forward<T>(embedding_sizes(call.input_shape(0), call.input_shape(1)),
                         call.input<int32_t>(0),
                         call.input<T>(1),
                         call.input<T>(2),
                         call.output<T>(0),
                         context_of(call).stream);
  });
}

size_t embedding_backward_workspace(const Graph& graph, const Op& op) {
  const Shape& ids = graph.shape(op.inputs[1]);
  const SortedTokens parts(ids);
  // The sort is over when the sums begin.
  return parts.rest + std::max(sort_tokens_workspace_bytes(parts.count),
                               embedding_backward_workspace_bytes(
                                   embedding_sizes(ids, graph.shape(op.outputs[0]))));
}

void run_embedding_backward(const OpCall& call) {
  const EmbeddingSizes sizes = embedding_sizes(call.input_shape(1), call.output_shape(0));
  const auto& attributes = call.attributes<EmbeddingAttributes>();
  const SortedTokens parts(call.input_shape(1));
  const Stream stream = context_of(call).stream;
  auto* sorted = reinterpret_cast<int32_t*>(call.workspace());
  auto* places = reinterpret_cast<int32_t*>(call.workspace() + parts.places);
  std::byte* rest = call.workspace() + parts.rest;
  sort_tokens(call.input<int32_t>(1), parts.count, sizes.vocabulary, sorted, places, rest, stream);
  by_type(call.input_dtype(0), [&]<typename T>() {
    embedding_backward<T>({.sizes = sizes,
                           .sorted_ids = sorted,
                           .places = places,
                           .d_y = call.input<T>(0),
                           .d_token = call.output<float>(0),
                           .accumulate_token = attributes.accumulate_token,
                           .d_position = call.output<float>(1),
                           .accumulate_position = attributes.accumulate_position,
                           .workspace = reinterpret_cast<float*>(rest)},
                          stream);
  });
}

bool supports_layer_norm(const Graph& graph, const Op& op) {
  const Tensor& x = graph[op.inputs[0]];
  const auto vector = static_cast<int64_t>(16 / size_of(x.dtype));
  const int64_t columns = x.shape.columns();
  return columns <= (columns % vector == 0 ? kLayerNormColumns : kLayerNormOddColumns);
}

void run_layer_norm(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    layer_norm_forward<T>({.rows = call.input_shape(0).rows(),
                           .columns = call.input_shape(0).columns(),
                           .epsilon = call.attributes<LayerNormAttributes>().epsilon,
                           .x = call.input<T>(0),
                           .delta = call.input<T>(1),
                           .gamma = call.input<T>(2),
                           .beta = call.input<T>(3),
                           .sum = call.output<T>(1),
                           .y = call.output<T>(0),
                           .mean = call.output<float>(2),
                           .rstd = call.output<float>(3)},
                          context_of(call).stream);
  });
}

size_t layer_norm_backward_workspace(const Graph& graph, const Op& op) {
  const Shape& shape = graph.shape(op.inputs[0]);
  return layer_norm_backward_workspace_bytes(shape.rows(), shape.columns());
}

void run_layer_norm_backward(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    layer_norm_backward<T>({.rows = call.input_shape(0).rows(),
                            .columns = call.input_shape(0).columns(),
                            .d_y = call.input<T>(0),
                            .x = call.input<T>(2),
                            .gamma = call.input<T>(3),
                            .mean = call.input<float>(4),
                            .rstd = call.input<float>(5),
                            .d_sum = call.input<T>(1),
                            .d_x = call.output<T>(0),
                            .d_gamma = call.output<float>(1),
                            .d_beta = call.output<float>(2),
                            .accumulate = false,
                            .workspace = reinterpret_cast<float*>(call.workspace())},
                           context_of(call).stream);
  });
}

void run_dropout(const OpCall& call) {
  const auto& attributes = call.attributes<DropoutAttributes>();
  // Forward and backward apply the same mask to their first input.
  by_type(call.input_dtype(0), [&]<typename T>() {
    dropout<T>(call.input<T>(0),
               call.output<T>(0),
               call.input_shape(0).elements(),
               attributes.probability,
               context_of(call).lane,
               kRngDropout | attributes.stream,
               context_of(call).stream);
  });
}

void run_add(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    add<T>(call.input<T>(0),
           call.input<T>(1),
           call.output<T>(0),
           call.input_shape(0).elements(),
           context_of(call).stream);
  });
}

void run_cast(const OpCall& call) {
  const int64_t n = call.input_shape(0).elements();
  const Stream stream = context_of(call).stream;
  if (call.output_dtype(0) == DType::kBF16) {
    cast(call.input<float>(0), call.output<BFloat16>(0), n, stream);
  } else {
    cast(call.input<float>(0), call.output<Float16>(0), n, stream);
  }
}

size_t loss_workspace(const Graph& graph, const Op& op) {
  return loss_workspace_bytes(graph.shape(op.inputs[0]).rows());
}

void run_softmax_cross_entropy(const OpCall& call) {
  const Shape& logits = call.input_shape(0);
  by_type(call.input_dtype(0), [&]<typename T>() {
    const SoftmaxCrossEntropy<T> loss = {
        .rows = logits.rows(),
        .classes = logits.columns(),
        .stride = call.input_stride(0),
        .lane = context_of(call).lane,
        .label_smoothing = call.attributes<LossAttributes>().label_smoothing,
        .targets = call.input<int32_t>(1),
        .workspace = reinterpret_cast<RowLoss*>(call.workspace()),
        .statistics = call.output<double>(0)};
    if (call.training()) {
      softmax_cross_entropy_forward_backward(
          loss, gradient_over_prediction<T>(call), context_of(call).stream);
    } else {
      softmax_cross_entropy_forward(loss, call.input<T>(0), context_of(call).stream);
    }
  });
}

void run_binary_cross_entropy(const OpCall& call) {
  run_pointwise_loss(call, PointwiseLossKind::kBinaryCrossEntropy);
}

void run_mean_squared_error(const OpCall& call) {
  run_pointwise_loss(call, PointwiseLossKind::kMeanSquaredError);
}

}  // namespace lockstep::cuda
