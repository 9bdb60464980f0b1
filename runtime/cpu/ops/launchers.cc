// Launchers: each unpacks an op into the call of its kernel. Inputs and outputs are numbered as
// graph/ops/<op>.h documents.
#include <algorithm>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/matmul/linear.h"
#include "runtime/cpu/matmul/linear_bf16x3.h"
#include "runtime/cpu/ops/activation.h"
#include "runtime/cpu/ops/attention.h"
#include "runtime/cpu/ops/binary_cross_entropy.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/mean_squared_error.h"
#include "runtime/cpu/ops/softmax_cross_entropy.h"
#include "runtime/graph/ops/attention.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/softmax_cross_entropy.h"

namespace lockstep::cpu {
namespace {

LinearShape linear_shape(const Shape& x, const Shape& weight) {
  return {x.elements() / weight[1], weight[1], weight[0]};  // x may have to be flattened
}

bool uses_bf16x3(const OpCall& op) { return op.bf16x3(); }

// The ways to multiply floats.
struct LinearKernels {
  decltype(&linear_workspace_bytes) workspace_bytes;
  decltype(&linear_forward) forward;
  decltype(&linear_backward_input) backward_input;
  decltype(&linear_backward_weight) backward_weight;
};
constexpr LinearKernels kLinear = {
    linear_workspace_bytes, linear_forward, linear_backward_input, linear_backward_weight};
constexpr LinearKernels kLinearBf16x3 = {bf16x3::linear_workspace_bytes,
                                         bf16x3::linear_forward,
                                         bf16x3::linear_backward_input,
                                         bf16x3::linear_backward_weight};

template <const LinearKernels& kKernels>
size_t linear_workspace(const OpCall& op) {
  const bool forward = op.kind() == OpKind::kLinear;
  const LinearShape shape =
      linear_shape(op.input_shape(forward ? 0 : 1), op.input_shape(forward ? 1 : 2));
  return static_cast<size_t>(kKernels.workspace_bytes(shape, compute_threads()));
}

template <const LinearKernels& kKernels>
void run_linear(const OpCall& call) {
  kKernels.forward({.shape = linear_shape(call.input_shape(0), call.input_shape(1)),
                    .x = call.input<float>(0),
                    .w = call.input<float>(1),
                    .epilogue = {.bias = call.input<float>(2),
                                 .activation = call.attributes<LinearAttributes>().activation},
                    .pre = call.output<float>(1),
                    .y = call.output<float>(0)},
                   call.workspace());
}

template <const LinearKernels& kKernels>
void run_linear_backward(const OpCall& call) {
  const LinearShape shape = linear_shape(call.input_shape(1), call.input_shape(2));
  const auto& attributes = call.attributes<LinearBackwardAttributes>();
  const float* d_y = call.input<float>(0);
  if (float* d_x = call.output<float>(0)) {
    kKernels.backward_input(shape, d_y, call.input<float>(2), d_x, call.workspace());
    if (const float* saved = call.input<float>(3))
      activation_backward({.activation = attributes.input_activation,
                           .n = shape.rows * shape.inputs,
                           .d_y = d_x,
                           .saved = saved,
                           .d_x = d_x});
  }
  kKernels.backward_weight(shape,
                           d_y,
                           call.input<float>(1),
                           call.output<float>(1),
                           attributes.accumulate_weight,
                           call.workspace());
  if (float* d_bias = call.output<float>(2))
    linear_backward_bias(shape, d_y, d_bias, attributes.accumulate_bias);
}

AttentionShape attention_shape(const Shape& qkv, const AttentionAttributes& attributes) {
  return {qkv[0], qkv[1], attributes.heads, qkv[2] / 3 / attributes.heads, attributes.causal};
}

size_t attention_workspace(const OpCall& op) {
  const size_t qkv = op.kind() == OpKind::kAttention ? 0 : 1;
  const AttentionShape shape =
      attention_shape(op.input_shape(qkv), op.attributes<AttentionAttributes>());
  return static_cast<size_t>(attention_workspace_bytes(shape, compute_threads()));
}

void run_attention(const OpCall& call) {
  attention_forward(attention_shape(call.input_shape(0), call.attributes<AttentionAttributes>()),
                    call.input<float>(0),
                    call.output<float>(0),
                    call.output<float>(1),
                    call.workspace());
}

void run_attention_backward(const OpCall& call) {
  attention_backward(attention_shape(call.input_shape(1), call.attributes<AttentionAttributes>()),
                     call.input<float>(0),
                     call.input<float>(1),
                     call.input<float>(2),
                     call.input<float>(3),
                     call.output<float>(0),
                     call.workspace());
}

size_t loss_workspace(const OpCall& op) { return loss_workspace_bytes(op.input_shape(0).rows()); }

// The gradient, where there is one, lies over the prediction.
float* gradient_over_prediction(const OpCall& call) {
  LOCKSTEP_CHECK(call.output<float>(1) == call.input<float>(0), "the loss works in place ");
  return call.output<float>(1);
}

void run_softmax_cross_entropy(const OpCall& call) {
  const Shape& logits = call.input_shape(0);
  const SoftmaxCrossEntropy loss = {
      .rows = logits.rows(),
      .classes = logits.columns(),
      .valid_rows = call.lane().valid_rows,
      .label_smoothing = call.attributes<SoftmaxCrossEntropyAttributes>().label_smoothing,
      .targets = call.input<int32_t>(1),
      .workspace = call.workspace(),
      .mix = call.lane().mix};
  if (call.training()) {
    softmax_cross_entropy_forward_backward(
        loss, gradient_over_prediction(call), call.lane().gradient_scale, call.output<double>(0));
  } else {
    softmax_cross_entropy_forward(loss, call.input<float>(0), call.output<double>(0));
  }
}

void run_binary_cross_entropy(const OpCall& call) {
  const Shape& logits = call.input_shape(0);
  const BinaryCrossEntropy loss = {.rows = logits.rows(),
                                   .outputs = logits.columns(),
                                   .valid_rows = call.lane().valid_rows,
                                   .targets = call.input<float>(1),
                                   .workspace = call.workspace()};
  if (call.training()) {
    binary_cross_entropy_forward_backward(
        loss, gradient_over_prediction(call), call.lane().gradient_scale, call.output<double>(0));
  } else {
    binary_cross_entropy_forward(loss, call.input<float>(0), call.output<double>(0));
  }
}

void run_mean_squared_error(const OpCall& call) {
  const Shape& predictions = call.input_shape(0);
  const MeanSquaredError loss = {.rows = predictions.rows(),
                                 .outputs = predictions.columns(),
                                 .valid_rows = call.lane().valid_rows,
                                 .targets = call.input<float>(1),
                                 .workspace = call.workspace()};
  if (call.training()) {
    mean_squared_error_forward_backward(
        loss, gradient_over_prediction(call), call.lane().gradient_scale, call.output<double>(0));
  } else {
    mean_squared_error_forward(loss, call.input<float>(0), call.output<double>(0));
  }
}

constexpr Implementation kLinearRows[] = {
    {OpKind::kLinear,
     "bf16x3",
     run_linear<kLinearBf16x3>,
     linear_workspace<kLinearBf16x3>,
     uses_bf16x3},
    {OpKind::kLinear, "gemm", run_linear<kLinear>, linear_workspace<kLinear>},
    {OpKind::kLinearBackward,
     "bf16x3",
     run_linear_backward<kLinearBf16x3>,
     linear_workspace<kLinearBf16x3>,
     uses_bf16x3},
    {OpKind::kLinearBackward, "gemm", run_linear_backward<kLinear>, linear_workspace<kLinear>},
};
constexpr Implementation kAttentionRows[] = {
    {OpKind::kAttention, "blockwise", run_attention, attention_workspace},
    {OpKind::kAttentionBackward, "blockwise", run_attention_backward, attention_workspace},
};
constexpr Implementation kSoftmaxCrossEntropyRows[] = {
    {OpKind::kSoftmaxCrossEntropy, "simd", run_softmax_cross_entropy, loss_workspace},
};
constexpr Implementation kPointwiseLossesRows[] = {
    {OpKind::kBinaryCrossEntropy, "simd", run_binary_cross_entropy, loss_workspace},
    {OpKind::kMeanSquaredError, "simd", run_mean_squared_error, loss_workspace},
};

}  // namespace

constinit const Implementations kCpuLinear = kLinearRows;
constinit const Implementations kCpuAttention = kAttentionRows;
constinit const Implementations kCpuSoftmaxCrossEntropy = kSoftmaxCrossEntropyRows;
constinit const Implementations kCpuPointwiseLosses = kPointwiseLossesRows;

}  // namespace lockstep::cpu
