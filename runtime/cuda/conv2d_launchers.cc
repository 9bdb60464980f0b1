// Convolutions through cuDNN where it has a deterministic engine within the workspace, else by the
// own kernels; each pass for itself, since neither leaves anything to the others.
#include <algorithm>
#include <set>

#include "runtime/base/log.h"
#include "runtime/cuda/activations.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/column_sum.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/conv2d.h"
#include "runtime/cuda/cudnn_conv2d.h"
#include "runtime/cuda/launchers.h"

namespace lockstep::cuda {
namespace {

Conv2dShape conv2d_shape(const Shape& x, const Shape& weight, const Conv2dAttributes& a) {
  return {.batch = x[0],
          .height = x[1],
          .width = x[2],
          .channels = x[3],
          .outputs = weight[0],
          .kernel_h = weight[1],
          .kernel_w = weight[2],
          .stride_h = a.stride.height,
          .stride_w = a.stride.width,
          .pad_h = a.padding.height,
          .pad_w = a.padding.width,
          .dilation_h = a.dilation.height,
          .dilation_w = a.dilation.width,
          .groups = a.groups};
}

Conv2dShape conv2d_shape(const Graph& graph, const Op& op) {
  const bool forward = op.kind == OpKind::kConv2d;
  return conv2d_shape(
      graph.shape(op.inputs[forward ? 0 : 1]),
      graph.shape(op.inputs[forward ? 1 : 2]),
      forward ? op.as<Conv2dAttributes>() : op.as<Conv2dBackwardAttributes>().forward);
}

// Whether cuDNN can; that it cannot is said once for each reason.
bool on_cudnn(const OpCall& call, const CudnnConv2dKey& key) {
  CudnnConv2d& cudnn = call.device<LaunchContext>().cudnn_conv2d;
  if (cudnn.supports(key)) return true;
  static std::set<std::string> said;
  if (said.insert(cudnn.why_not()).second)
    spdlog::warn("a convolution by the own kernel, which is slower than cuDNN's: {}",
                 cudnn.why_not());
  return false;
}

CudnnConv2dKey key_of(const OpCall& call, const Conv2dShape& shape, Conv2dPass pass) {
  return {shape, call.input_dtype(0), call.device<LaunchContext>().tf32, pass};
}

}  // namespace

bool supports_conv2d(const Graph& graph, const Op& op) {
  return conv2d_supports(conv2d_shape(graph, op));
}

size_t conv2d_workspace(const Graph& graph, const Op& op) {
  const Conv2dShape shape = conv2d_shape(graph, op);
  const auto cudnn = [&](Conv2dPass pass) {
    return cudnn_conv2d_workspace_bytes({shape, graph[op.inputs[0]].dtype, false, pass});
  };
  if (op.kind == OpKind::kConv2d) return cudnn(Conv2dPass::kForward);
  size_t bytes = std::max({conv2d_workspace_bytes(shape),
                           cudnn(Conv2dPass::kBackwardInput),
                           cudnn(Conv2dPass::kBackwardWeight)});
  if (op.outputs[2] != kNoTensor)
    bytes = std::max(bytes, column_sum_workspace_bytes(shape.out_pixels(), shape.outputs));
  return bytes;
}

void run_conv2d(const OpCall& call) {
  auto& context = call.device<LaunchContext>();
  const auto& attributes = call.attributes<Conv2dAttributes>();
  const Conv2dShape shape = conv2d_shape(call.input_shape(0), call.input_shape(1), attributes);
  const bool bias = call.input<std::byte>(2) != nullptr;
  const bool relu = attributes.activation == Activation::kRelu;
  CudnnConv2dKey key = key_of(call, shape, Conv2dPass::kForward);
  key.bias = bias;
  key.relu = relu;
  // First everything at once, then the convolution alone.
  const bool whole = context.cudnn_conv2d.supports(key);
  if (!whole) key.bias = key.relu = false;
  const bool cudnn = whole || on_cudnn(call, key);
  if (cudnn)
    context.cudnn_conv2d.run(key,
                             {.x = call.input<std::byte>(0),
                              .w = call.input<std::byte>(1),
                              .y = call.output<std::byte>(0),
                              .bias = call.input<std::byte>(2)},
                             call.workspace());
  by_type(call.input_dtype(0), [&]<typename T>() {
    T* const y = call.output<T>(0);
    if (!cudnn)
      conv2d_forward<T>(
          shape, call.input<T>(0), call.input<T>(1), call.input<T>(2), y, context.stream);
    if (cudnn && bias && !key.bias)
      add_bias<T>(call.input<T>(2), shape.out_pixels(), shape.outputs, y, context.stream);
    if (attributes.activation == Activation::kNone || key.relu) return;
    activation_forward<T>(
        attributes.activation, y, y, shape.out_pixels() * shape.outputs, context.stream);
  });
}

namespace {

void run_input_gradient(const OpCall& call, const Conv2dShape& shape) {
  auto& context = call.device<LaunchContext>();
  const CudnnConv2dKey key = key_of(call, shape, Conv2dPass::kBackwardInput);
  if (on_cudnn(call, key))
    return context.cudnn_conv2d.run(key,
                                    {.x = call.output<std::byte>(0),
                                     .w = call.input<std::byte>(2),
                                     .y = call.input<std::byte>(0)},
                                    call.workspace());
  by_type(call.input_dtype(0), [&]<typename T>() {
    conv2d_backward_input<T>(
        shape, call.input<T>(0), call.input<T>(2), call.output<T>(0), context.stream);
  });
}

// cuDNN's overwrites: what is added to something goes through the own kernel.
void run_weight_gradient(const OpCall& call, const Conv2dShape& shape, bool accumulate) {
  auto& context = call.device<LaunchContext>();
  const CudnnConv2dKey key = key_of(call, shape, Conv2dPass::kBackwardWeight);
  if (!accumulate && on_cudnn(call, key))
    return context.cudnn_conv2d.run(key,
                                    {.x = call.input<std::byte>(1),
                                     .w = call.output<std::byte>(1),
                                     .y = call.input<std::byte>(0)},
                                    call.workspace());
  by_type(call.input_dtype(0), [&]<typename T>() {
    conv2d_backward_weight<T>(shape,
                              call.input<T>(0),
                              call.input<T>(1),
                              accumulate,
                              call.output<float>(1),
                              reinterpret_cast<float*>(call.workspace()),
                              context.stream);
  });
}

}  // namespace

void run_conv2d_backward(const OpCall& call) {
  const auto& attributes = call.attributes<Conv2dBackwardAttributes>();
  const Conv2dShape shape =
      conv2d_shape(call.input_shape(1), call.input_shape(2), attributes.forward);
  if (call.output<std::byte>(0) != nullptr) run_input_gradient(call, shape);
  run_weight_gradient(call, shape, attributes.accumulate_weight);
  float* const d_bias = call.output<float>(2);
  if (d_bias == nullptr) return;
  by_type(call.input_dtype(0), [&]<typename T>() {
    column_sum<T>(call.input<T>(0),
                  shape.out_pixels(),
                  shape.outputs,
                  shape.outputs,
                  attributes.accumulate_bias,
                  d_bias,
                  reinterpret_cast<float*>(call.workspace()),
                  call.device<LaunchContext>().stream);
  });
}

}  // namespace lockstep::cuda
