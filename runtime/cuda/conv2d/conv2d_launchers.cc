// Convolutions through cuDNN where it has a deterministic engine within the workspace, else by the
// own kernels; each pass for itself, since neither leaves anything to the others. The gradient of
// the weights of a 1x1 convolution is one product of matrices, which cuBLASLt stores as floats
// whatever the images are; of others, where cuDNN can store it in their type alone, it is widened
// afterwards.
#include <algorithm>
#include <set>

#include "runtime/base/log.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/conv2d/conv2d.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/flat/column_sum.h"
#include "runtime/cuda/ops/activations.h"
#include "runtime/cuda/ops/elementwise.h"
#include "runtime/cuda/ops/launchers.h"

namespace lockstep::cuda {
namespace {

Conv2dShape shape_of(const Graph& graph, const Op& op) {
  const bool forward = op.kind == OpKind::kConv2d;
  return conv2d_shape(
      graph.shape(op.inputs[forward ? 0 : 1]),
      graph.shape(op.inputs[forward ? 1 : 2]),
      forward ? op.as<Conv2dAttributes>() : op.as<Conv2dBackwardAttributes>().forward);
}

void warn_once(const std::string& what) {
  static std::set<std::string> said;
  if (said.insert(what).second) log_warn("{}", what);
}

// Whether cuDNN can; that it cannot is said once for each reason.
bool on_cudnn(const OpCall& call, const CudnnConv2dKey& key) {
  CudnnConv2d& cudnn = call.device<LaunchContext>().cudnn_conv2d;
  if (cudnn.supports(key)) return true;
  warn_once("a convolution by the own kernel, which is slower than cuDNN's: " + cudnn.why_not());
  return false;
}

// Before the gradient of w as cuDNN stores it.
size_t narrow_gradient_offset(const CudnnConv2dKey& key) {
  constexpr size_t kAlignment = 256;
  return (cudnn_conv2d_workspace_bytes(key) + kAlignment - 1) / kAlignment * kAlignment;
}

CudnnConv2dKey key_of(const OpCall& call, const Conv2dShape& shape, Conv2dPass pass) {
  return {shape, call.input_dtype(0), call.device<LaunchContext>().tf32, pass};
}

}  // namespace

bool supports_conv2d(const Graph& graph, const Op& op) {
  return conv2d_supports(shape_of(graph, op));
}

size_t conv2d_workspace(const Graph& graph, const Op& op) {
  const Conv2dShape shape = shape_of(graph, op);
  const DType dtype = graph[op.inputs[0]].dtype;
  const auto cudnn_key = [&](Conv2dPass pass) { return CudnnConv2dKey{shape, dtype, false, pass}; };
  if (op.kind == OpKind::kConv2d)
    return cudnn_conv2d_workspace_bytes(cudnn_key(Conv2dPass::kForward));
  size_t bytes = cudnn_conv2d_workspace_bytes(cudnn_key(Conv2dPass::kBackwardInput));
  bytes = std::max(bytes, conv2d_workspace_bytes(shape));
  if (!shape.is_linear())
    bytes = std::max(bytes,
                     narrow_gradient_offset(cudnn_key(Conv2dPass::kBackwardWeight)) +
                         static_cast<size_t>(shape.outputs * shape.patch()) * size_of(dtype));
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

// d_w as one product; false where cuBLASLt has no algorithm for it.
bool on_cublaslt(const OpCall& call, const Conv2dShape& shape, bool accumulate) {
  auto& context = call.device<LaunchContext>();
  const Product product = {.m = shape.outputs,
                           .n = shape.channels,
                           .k = shape.pixels(),
                           .transpose_a = true,
                           .in = call.input_dtype(0),
                           .out = DType::kF32,
                           .accumulate = accumulate,
                           .tf32 = context.tf32};
  if (!context.matmul.supports(product)) {
    warn_once(
        fmt::format("the gradient of a 1x1 convolution's weights by the own kernel, which is "
                    "slower: cuBLASLt has no algorithm for {} x {} outputs and channels in {}",
                    product.m,
                    product.n,
                    name_of(product.in)));
    return false;
  }
  context.matmul.run(product,
                     {.a = call.input<std::byte>(0),
                      .b = call.input<std::byte>(1),
                      .out = call.output<std::byte>(1)});
  return true;
}

// d_w through cuDNN; false where it has no engine for it.
bool weight_gradient_on_cudnn(const OpCall& call, const Conv2dShape& shape, bool accumulate) {
  auto& context = call.device<LaunchContext>();
  CudnnConv2dKey key = key_of(call, shape, Conv2dPass::kBackwardWeight);
  const auto run = [&](void* d_w) {
    context.cudnn_conv2d.run(
        key,
        {.x = call.input<std::byte>(1), .w = d_w, .y = call.input<std::byte>(0)},
        call.workspace());
    return true;
  };
  // Floats are stored as such anyhow.
  key.wide = key.dtype != DType::kF32 && !accumulate;
  if (!accumulate && context.cudnn_conv2d.supports(key)) return run(call.output<std::byte>(1));
  const std::string why_not_wide = key.wide ? context.cudnn_conv2d.why_not() : "";
  key.wide = false;
  if (!on_cudnn(call, key)) return false;
  // Channels that cuDNN pads, as the first layer's 3, are known to go this way.
  if (!why_not_wide.empty() && shape.channels % 8 == 0)
    warn_once(fmt::format("gradients of convolutions' weights are rounded to {}: {}",
                          name_of(key.dtype),
                          why_not_wide));
  std::byte* const narrow = call.workspace() + narrow_gradient_offset(key);
  run(narrow);
  by_type(key.dtype, [&]<typename T>() {
    widen<T>(reinterpret_cast<const T*>(narrow),
             accumulate,
             call.output<float>(1),
             shape.outputs * shape.patch(),
             context.stream);
  });
  return true;
}

void run_weight_gradient(const OpCall& call, const Conv2dShape& shape, bool accumulate) {
  if (shape.is_linear() ? on_cublaslt(call, shape, accumulate)
                        : weight_gradient_on_cudnn(call, shape, accumulate))
    return;
  auto& context = call.device<LaunchContext>();
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
