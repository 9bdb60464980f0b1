// Launchers on own kernels: each unpacks an op into the call of its kernel, for the type that the
// op's tensors store. Inputs and outputs are numbered as graph/ops/<op>.h documents.
#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/rng.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/activations.h"
#include "runtime/cuda/ops/dropout.h"
#include "runtime/cuda/ops/elementwise.h"
#include "runtime/cuda/ops/embedding.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/layer_norm.h"
#include "runtime/cuda/ops/pointwise_losses.h"
#include "runtime/cuda/ops/softmax_cross_entropy.h"
#include "runtime/cuda/ops/token_sort.h"
#include "runtime/graph/ops/activation.h"
#include "runtime/graph/ops/dropout.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/ops/layer_norm.h"
#include "runtime/graph/ops/softmax_cross_entropy.h"

namespace lockstep::cuda {
namespace {

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
      pointwise_loss_forward_backward(loss, gradient_over_prediction<T>(call), stream_of(call));
    } else {
      pointwise_loss_forward(loss, call.input<T>(0), stream_of(call));
    }
  });
}

void run_activation(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    activation_forward<T>(call.attributes<ActivationAttributes>().activation,
                          call.input<T>(0),
                          call.output<T>(0),
                          call.input_shape(0).elements(),
                          stream_of(call));
  });
}

void run_activation_backward(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    activation_backward<T>(call.attributes<ActivationAttributes>().activation,
                           call.input<T>(0),
                           call.input<T>(1),
                           call.output<T>(0),
                           call.input_shape(0).elements(),
                           stream_of(call));
  });
}

void run_embedding(const OpCall& call) {
  by_type(call.input_dtype(1), [&]<typename T>() {
    embedding_forward<T>(embedding_sizes(call.input_shape(0), call.input_shape(1)),
                         call.input<int32_t>(0),
                         call.input<T>(1),
                         call.input<T>(2),
                         call.output<T>(0),
                         stream_of(call));
  });
}

size_t embedding_backward_workspace(const OpCall& op) {
  const Shape& ids = op.input_shape(1);
  const SortedTokens parts(ids);
  // The sort is over when the sums begin.
  return parts.rest +
         std::max(sort_tokens_workspace_bytes(parts.count),
                  embedding_backward_workspace_bytes(embedding_sizes(ids, op.output_shape(0))));
}

void run_embedding_backward(const OpCall& call) {
  const EmbeddingSizes sizes = embedding_sizes(call.input_shape(1), call.output_shape(0));
  const auto& attributes = call.attributes<EmbeddingAttributes>();
  const SortedTokens parts(call.input_shape(1));
  const Stream stream = stream_of(call);
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

bool supports_layer_norm(const OpCall& op) {
  const auto vector = static_cast<int64_t>(16 / size_of(op.input_dtype(0)));
  const int64_t columns = op.input_shape(0).columns();
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
                          stream_of(call));
  });
}

size_t layer_norm_backward_workspace(const OpCall& op) {
  const Shape& shape = op.input_shape(0);
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
                           stream_of(call));
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
               stream_of(call));
  });
}

void run_add(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    add<T>(call.input<T>(0),
           call.input<T>(1),
           call.output<T>(0),
           call.input_shape(0).elements(),
           stream_of(call));
  });
}

void run_cast(const OpCall& call) {
  const int64_t n = call.input_shape(0).elements();
  const Stream stream = stream_of(call);
  if (call.output_dtype(0) == DType::kBF16) {
    cast(call.input<float>(0), call.output<BFloat16>(0), n, stream);
  } else {
    cast(call.input<float>(0), call.output<Float16>(0), n, stream);
  }
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

constexpr Implementation kActivationRows[] = {
    {OpKind::kActivation, "own", run_activation},
    {OpKind::kActivationBackward, "own", run_activation_backward},
};
constexpr Implementation kEmbeddingRows[] = {
    {OpKind::kEmbedding, "own", run_embedding},
    {OpKind::kEmbeddingBackward, "own", run_embedding_backward, embedding_backward_workspace},
};
constexpr Implementation kLayerNormRows[] = {
    {.kind = OpKind::kLayerNorm,
     .name = "own",
     .run = run_layer_norm,
     .supports = supports_layer_norm},
    {OpKind::kLayerNormBackward,
     "own",
     run_layer_norm_backward,
     layer_norm_backward_workspace,
     supports_layer_norm},
};
constexpr Implementation kDropoutRows[] = {
    {OpKind::kDropout, "own", run_dropout},
    {OpKind::kDropoutBackward, "own", run_dropout},
};
constexpr Implementation kAddRows[] = {
    {OpKind::kAdd, "own", run_add},
};
constexpr Implementation kCastRows[] = {
    {OpKind::kCast, "own", run_cast},
};
constexpr Implementation kSoftmaxCrossEntropyRows[] = {
    {OpKind::kSoftmaxCrossEntropy, "own", run_softmax_cross_entropy, loss_workspace},
};
constexpr Implementation kPointwiseLossesRows[] = {
    {OpKind::kBinaryCrossEntropy, "own", run_binary_cross_entropy, loss_workspace},
    {OpKind::kMeanSquaredError, "own", run_mean_squared_error, loss_workspace},
};

}  // namespace

constinit const Implementations kCudaActivation = kActivationRows;
constinit const Implementations kCudaEmbedding = kEmbeddingRows;
constinit const Implementations kCudaLayerNorm = kLayerNormRows;
constinit const Implementations kCudaDropout = kDropoutRows;
constinit const Implementations kCudaAdd = kAddRows;
constinit const Implementations kCudaCast = kCastRows;
constinit const Implementations kCudaSoftmaxCrossEntropy = kSoftmaxCrossEntropyRows;
constinit const Implementations kCudaPointwiseLosses = kPointwiseLossesRows;

}  // namespace lockstep::cuda
