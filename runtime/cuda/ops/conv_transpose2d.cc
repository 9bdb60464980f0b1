// Transposed convolutions by cuDNN or the native kernels of conv2d: the forward pass is conv2d's
// gradient of the input, the backward pass a convolution and a gradient of the weights. The latter
// uses cuDNN if it stores floats.
#include "runtime/graph/ops/conv_transpose2d.h"

#include <algorithm>

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/conv2d/conv2d.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/flat/column_sum.h"
#include "runtime/cuda/halves.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/plan/conv2d.h"
#include "runtime/cuda/warn_once.h"

namespace lockstep::cuda {
namespace {

// Arrays are passed as bytes; the libraries get their type separately.
using Forward = graph::ConvTranspose2dForward<std::byte>;
using Backward = graph::ConvTranspose2dBackward<std::byte>;

CudnnConv2dKey key_of(const graph::OpCall& call, Conv2dPass pass) {
  const bool tf32 = context_of(call).tf32;
  return pass == Conv2dPass::kBackwardWeight ? cudnn_conv2d_wide_key(call, tf32)
                                             : cudnn_conv2d_key(call, pass, tf32);
}

// Whether cuDNN supports this pass. If not, logs a warning, once for each reason.
bool cudnn_supports(const graph::OpCall& call, Conv2dPass pass) {
  CudnnConv2d& cudnn = *context_of(call).cudnn_conv2d;
  if (cudnn.supports(key_of(call, pass))) return true;
  warn_once("a transposed convolution uses the native kernel, which is slower than cuDNN's: " +
            cudnn.why_not());
  return false;
}

// ---- Forward ----

bool has_cudnn(const graph::OpCall& call) {
  return cudnn_supports(call, Conv2dPass::kBackwardInput);
}

void run_bias(const graph::OpCall& call) {
  by_type<graph::ConvTranspose2dForward>(call, [&]<typename T>(const auto& op) {
    if (op.bias != nullptr) add_bias(op.bias_sum(), stream_of(call));
  });
}

void run_cudnn(const graph::OpCall& call) {
  const Forward op{call};
  context_of(call).cudnn_conv2d->run(key_of(call, Conv2dPass::kBackwardInput),
                                     {.x = op.y, .w = op.weight, .y = op.x},
                                     op.workspace);
  run_bias(call);
}

void run_native(const graph::OpCall& call) {
  by_type<graph::ConvTranspose2dForward>(call, [&]<typename T>(const auto& op) {
    conv2d_backward_input(op.product(), stream_of(call));
  });
  run_bias(call);
}

// ---- Backward: d_x ----

constexpr Half kInputOnCudnn = {
    .run =
        [](const graph::OpCall& call) {
          const Backward op{call};
          if (op.d_x == nullptr) return;
          context_of(call).cudnn_conv2d->run(key_of(call, Conv2dPass::kForward),
                                             {.x = op.d_y, .w = op.weight, .y = op.d_x},
                                             op.workspace);
        },
    .workspace_bytes = cudnn_conv2d_workspace<Conv2dPass::kForward>,
    .supports = conv2d_supports_op,
    .available =
        [](const graph::OpCall& call) {
          return !call.has_output(graph::ConvTranspose2dBackwardOut::kDX) ||
                 cudnn_supports(call, Conv2dPass::kForward);
        }};

void run_native_input(const graph::OpCall& call) {
  by_type<graph::ConvTranspose2dBackward>(call, [&]<typename T>(const auto& op) {
    if (op.d_x != nullptr) conv2d_forward(op.input_product(), stream_of(call));
  });
}

constexpr Half kNativeInput = {.run = run_native_input, .supports = conv2d_supports_op};

// ---- Backward: d_weight, then d_bias ----

void run_bias_gradient(const graph::OpCall& call) {
  by_type<graph::ConvTranspose2dBackward>(call, [&]<typename T>(const auto& op) {
    if (op.d_bias == nullptr) return;
    column_sum<T>(op.d_y,
                  op.shape.pixels(),
                  op.shape.channels,
                  op.shape.channels,
                  op.accumulate_bias,
                  op.d_bias,
                  reinterpret_cast<float*>(op.workspace),
                  context_of(call));
  });
}

constexpr Half kWeightOnCudnn = {
    .run =
        [](const graph::OpCall& call) {
          const Backward op{call};
          if (op.d_weight != nullptr) {
            context_of(call).cudnn_conv2d->run(key_of(call, Conv2dPass::kBackwardWeight),
                                               {.x = op.d_y, .w = op.d_weight, .y = op.x},
                                               op.workspace);
          }
          run_bias_gradient(call);
        },
    .workspace_bytes =
        [](const graph::OpCall& op) {
          return std::max(cudnn_conv2d_workspace<Conv2dPass::kBackwardWeight>(op),
                          conv_transpose2d_bias_workspace(op));
        },
    .available =
        [](const graph::OpCall& call) {
          return !call.has_output(graph::ConvTranspose2dBackwardOut::kDWeight) ||
                 (!Backward{call}.accumulate_weight &&
                  cudnn_supports(call, Conv2dPass::kBackwardWeight));
        }};

void run_native_weight(const graph::OpCall& call) {
  by_type<graph::ConvTranspose2dBackward>(call, [&]<typename T>(const auto& op) {
    if (op.d_weight != nullptr) conv2d_backward_weight(op.weight_product(), stream_of(call));
  });
  run_bias_gradient(call);
}

constexpr Half kNativeWeight = {
    .run = run_native_weight, .workspace_bytes = [](const graph::OpCall& op) {
      return std::max(native_conv2d_weight_workspace(op), conv_transpose2d_bias_workspace(op));
    }};

template <const Half& kInput, const Half& kWeight>
constexpr exec::Implementation backward(const char* name) {
  return both<graph::OpKind::kConvTranspose2dBackward, kInput, kWeight>(name);
}

constexpr auto kForwardWorkspace = cudnn_conv2d_workspace<Conv2dPass::kBackwardInput>;

constexpr exec::Implementation kRows[] = {
    exec::row<run_cudnn, kForwardWorkspace, conv2d_supports_op, has_cudnn>(
        graph::OpKind::kConvTranspose2d, "cudnn"),
    exec::row<run_native, exec::no_workspace, conv2d_supports_op>(graph::OpKind::kConvTranspose2d,
                                                                  "native"),
    backward<kInputOnCudnn, kWeightOnCudnn>("cudnn, cudnn"),
    backward<kInputOnCudnn, kNativeWeight>("cudnn, native"),
    backward<kNativeInput, kWeightOnCudnn>("native, cudnn"),
    backward<kNativeInput, kNativeWeight>("native, native"),
};

}  // namespace

constinit const exec::Implementations kCudaConvTranspose2d = kRows;

}  // namespace lockstep::cuda
