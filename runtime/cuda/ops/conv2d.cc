// Convolutions through cuDNN if it has a deterministic engine that fits into the workspace,
// otherwise by the native kernels. Each pass chooses separately, because none leaves data to
// another. The gradient of the weights of a 1x1 convolution is one matrix product, which cuBLASLt
// stores as floats for any type of the images. For other kernels, cuDNN may be able to store that
// gradient only in the images' type; then it is widened afterwards.
#include "runtime/graph/ops/conv2d.h"

#include <fmt/core.h>

#include <algorithm>

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/conv2d/conv2d.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/flat/column_sum.h"
#include "runtime/cuda/halves.h"
#include "runtime/cuda/matmul/matmul.h"
#include "runtime/cuda/ops/activation.h"
#include "runtime/cuda/ops/cast.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/plan/conv2d.h"
#include "runtime/cuda/warn_once.h"

namespace lockstep::cuda {
namespace {

// Arrays are passed as bytes; the libraries get their type separately.
using Forward = graph::Conv2dForward<std::byte>;
using Backward = graph::Conv2dBackward<std::byte>;

CudnnConv2dKey key_of(const graph::OpCall& call, Conv2dPass pass) {
  return cudnn_conv2d_key(call, pass, context_of(call).tf32);
}

// Whether cuDNN supports this pass. If not, logs a warning, once for each reason.
bool cudnn_supports(const graph::OpCall& call, const CudnnConv2dKey& key) {
  CudnnConv2d& cudnn = *context_of(call).cudnn_conv2d;
  if (cudnn.supports(key)) return true;
  warn_once("a convolution uses the native kernel, which is slower than cuDNN's: " +
            cudnn.why_not());
  return false;
}

// ---- Forward ----

CudnnConv2dKey epilogue_key(const graph::OpCall& call) {
  return cudnn_conv2d_epilogue_key(call, context_of(call).tf32);
}
bool has_epilogue(const graph::OpCall& call) {
  return context_of(call).cudnn_conv2d->supports(epilogue_key(call));
}
bool has_cudnn(const graph::OpCall& call) {
  return cudnn_supports(call, key_of(call, Conv2dPass::kForward));
}

void run_on_cudnn(const graph::OpCall& call, const CudnnConv2dKey& key) {
  const Forward op{call};
  context_of(call).cudnn_conv2d->run(
      key, {.x = op.x, .w = op.weight, .y = op.y, .bias = op.bias}, op.workspace);
}

// Applies the activation to y in place.
template <typename T>
void run_activation(const graph::Conv2dForward<T>& op, Stream stream) {
  if (op.activation == Activation::kNone) return;
  activation_forward<T>({.activation = op.activation,
                         .n = op.shape.out_pixels() * op.shape.outputs,
                         .x = op.y,
                         .y = op.y},
                        stream);
}

void run_with_epilogue(const graph::OpCall& call) {
  const CudnnConv2dKey key = epilogue_key(call);
  run_on_cudnn(call, key);
  if (key.relu) return;
  by_type(key.dtype,
          [&]<typename T>() { run_activation(graph::Conv2dForward<T>{call}, stream_of(call)); });
}

void run_cudnn(const graph::OpCall& call) {
  const CudnnConv2dKey key = key_of(call, Conv2dPass::kForward);
  run_on_cudnn(call, key);
  by_type(key.dtype, [&]<typename T>() {
    const graph::Conv2dForward<T> op{call};
    if (op.bias != nullptr) add_bias(op, stream_of(call));
    run_activation(op, stream_of(call));
  });
}

void run_native(const graph::OpCall& call) {
  by_type<graph::Conv2dForward>(call, [&]<typename T>(const auto& op) {
    conv2d_forward(op, stream_of(call));
    run_activation(op, stream_of(call));
  });
}

// ---- Backward: d_x ----

constexpr Half kInputOnCudnn = {
    .run =
        [](const graph::OpCall& call) {
          const Backward op{call};
          if (op.d_x == nullptr) return;
          context_of(call).cudnn_conv2d->run(key_of(call, Conv2dPass::kBackwardInput),
                                             {.x = op.d_x, .w = op.weight, .y = op.d_y},
                                             op.workspace);
        },
    .workspace_bytes = cudnn_conv2d_workspace<Conv2dPass::kBackwardInput>,
    .supports = conv2d_supports_op,
    .available =
        [](const graph::OpCall& call) {
          return !call.has_output(graph::Conv2dBackwardOut::kDX) ||
                 cudnn_supports(call, key_of(call, Conv2dPass::kBackwardInput));
        }};

void run_native_input(const graph::OpCall& call) {
  by_type<graph::Conv2dBackward>(call, [&]<typename T>(const auto& op) {
    if (op.d_x != nullptr) conv2d_backward_input(op, stream_of(call));
  });
}

constexpr Half kNativeInput = {.run = run_native_input, .supports = conv2d_supports_op};

// ---- Backward: d_weight ----

bool is_linear(const graph::OpCall& op) { return conv2d_shape(op).is_linear(); }
bool is_not_linear(const graph::OpCall& op) { return !is_linear(op); }
bool accumulates(const graph::OpCall& op) { return Backward{op}.accumulate_weight; }

// The weight gradient of a 1x1 convolution as one product.
Product product_of(const graph::OpCall& call) {
  const Backward op{call};
  return {.m = op.shape.outputs,
          .n = op.shape.channels,
          .k = op.shape.pixels(),
          .transpose_a = true,
          .in = call.input_dtype(graph::Conv2dBackwardIn::kDY),
          .out = DType::kF32,
          .accumulate = op.accumulate_weight,
          .tf32 = context_of(call).tf32};
}

constexpr Half kWeightOnCublaslt = {
    .run =
        [](const graph::OpCall& call) {
          const Backward op{call};
          context_of(call).matmul->run(product_of(call),
                                       {.a = op.d_y, .b = op.x, .out = op.d_weight});
        },
    .supports = is_linear,
    .available =
        [](const graph::OpCall& call) {
          const Product product = product_of(call);
          if (context_of(call).matmul->supports(product)) return true;
          warn_once(fmt::format(
              "the weight gradient of a 1x1 convolution uses the native kernel, which is slower: "
              "cuBLASLt has no algorithm for {} x {} outputs and channels in {}",
              product.m,
              product.n,
              name_of(product.in)));
          return false;
        }};

void run_weight_on_cudnn(const graph::OpCall& call, const CudnnConv2dKey& key, void* d_weight) {
  const Backward op{call};
  context_of(call).cudnn_conv2d->run(key, {.x = op.x, .w = d_weight, .y = op.d_y}, op.workspace);
}

CudnnConv2dKey wide_key(const graph::OpCall& call) {
  return cudnn_conv2d_wide_key(call, context_of(call).tf32);
}

bool has_wide(const graph::OpCall& call) {
  return !accumulates(call) && context_of(call).cudnn_conv2d->supports(wide_key(call));
}

constexpr Half kWeightOnCudnn = {
    .run =
        [](const graph::OpCall& call) {
          run_weight_on_cudnn(call, wide_key(call), Backward{call}.d_weight);
        },
    .workspace_bytes = cudnn_conv2d_workspace<Conv2dPass::kBackwardWeight>,
    .supports = is_not_linear,
    .available = has_wide};

// Stores the gradient in the images' type, then widens it.
constexpr Half kWeightWidened = {
    .run =
        [](const graph::OpCall& call) {
          const Backward op{call};
          const CudnnConv2dKey key = key_of(call, Conv2dPass::kBackwardWeight);
          std::byte* const narrow = op.workspace + narrow_gradient_offset(call);
          run_weight_on_cudnn(call, key, narrow);
          by_type(key.dtype, [&]<typename T>() {
            widen<T>(reinterpret_cast<const T*>(narrow),
                     op.accumulate_weight,
                     op.d_weight,
                     op.shape.outputs * op.shape.patch(),
                     stream_of(call));
          });
        },
    .workspace_bytes = conv2d_widened_workspace,
    .supports = is_not_linear,
    .available =
        [](const graph::OpCall& call) {
          CudnnConv2d& cudnn = *context_of(call).cudnn_conv2d;
          const CudnnConv2dKey key = key_of(call, Conv2dPass::kBackwardWeight);
          if (!cudnn_supports(call, key)) return false;
          // There is no warning if the channels are not a multiple of 8, as the 3 of a first layer:
          // cuDNN pads them and is known not to store floats then.
          if (key.dtype != DType::kF32 && !accumulates(call) && key.shape.channels % 8 == 0 &&
              !cudnn.supports(wide_key(call)))
            warn_once(fmt::format("gradients of convolutions' weights are rounded to {}: {}",
                                  name_of(key.dtype),
                                  cudnn.why_not()));
          return true;
        }};

void run_native_weight(const graph::OpCall& call) {
  by_type<graph::Conv2dBackward>(
      call, [&]<typename T>(const auto& op) { conv2d_backward_weight(op, stream_of(call)); });
}

constexpr Half kNativeWeight = {.run = run_native_weight,
                                .workspace_bytes = native_conv2d_weight_workspace};

// ---- Backward: d_bias, after d_weight ----

void run_bias(const graph::OpCall& call) {
  by_type<graph::Conv2dBackward>(call, [&]<typename T>(const auto& op) {
    if (op.d_bias == nullptr) return;
    column_sum<T>(op.d_y,
                  op.shape.out_pixels(),
                  op.shape.outputs,
                  op.shape.outputs,
                  op.accumulate_bias,
                  op.d_bias,
                  reinterpret_cast<float*>(op.workspace),
                  context_of(call));
  });
}

template <const Half& kWeight>
constexpr Half kAndBias = {
    .run =
        [](const graph::OpCall& call) {
          if (call.has_output(graph::Conv2dBackwardOut::kDWeight)) kWeight.run(call);
          run_bias(call);
        },
    .workspace_bytes =
        [](const graph::OpCall& op) {
          return std::max(kWeight.workspace_bytes(op), conv2d_bias_workspace(op));
        },
    .supports = kWeight.supports,
    .available =
        kWeight.available == nullptr
            ? nullptr
            : +[](const graph::OpCall& op) {
                return !op.has_output(graph::Conv2dBackwardOut::kDWeight) || kWeight.available(op);
              }};

template <const Half& kInput, const Half& kWeight>
constexpr exec::Implementation backward(const char* name) {
  return both<graph::OpKind::kConv2dBackward, kInput, kAndBias<kWeight>>(name);
}

constexpr auto kForwardWorkspace = cudnn_conv2d_workspace<Conv2dPass::kForward>;

constexpr exec::Implementation kRows[] = {
    exec::row<run_with_epilogue, kForwardWorkspace, conv2d_supports_op, has_epilogue>(
        graph::OpKind::kConv2d, "cudnn with epilogue"),
    exec::row<run_cudnn, kForwardWorkspace, conv2d_supports_op, has_cudnn>(graph::OpKind::kConv2d,
                                                                           "cudnn"),
    exec::row<run_native, exec::no_workspace, conv2d_supports_op>(graph::OpKind::kConv2d, "native"),
    backward<kInputOnCudnn, kWeightOnCublaslt>("cudnn, cublaslt"),
    backward<kInputOnCudnn, kWeightOnCudnn>("cudnn, cudnn"),
    backward<kInputOnCudnn, kWeightWidened>("cudnn, cudnn widened"),
    backward<kInputOnCudnn, kNativeWeight>("cudnn, native"),
    backward<kNativeInput, kWeightOnCublaslt>("native, cublaslt"),
    backward<kNativeInput, kWeightOnCudnn>("native, cudnn"),
    backward<kNativeInput, kWeightWidened>("native, cudnn widened"),
    backward<kNativeInput, kNativeWeight>("native, native"),
};

}  // namespace

constinit const exec::Implementations kCudaConv2d = kRows;

}  // namespace lockstep::cuda
