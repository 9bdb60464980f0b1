// Convolutions through cuDNN where it has a deterministic engine within the workspace, else by the
// own kernels; each pass for itself, since neither leaves anything to the others. The gradient of
// the weights of a 1x1 convolution is one product of matrices, which cuBLASLt stores as floats
// whatever the images are; of others, where cuDNN can store it in their type alone, it is widened
// afterwards.
#include <fmt/core.h>

#include <algorithm>

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/conv2d/conv2d.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/flat/column_sum.h"
#include "runtime/cuda/matmul/matmul.h"
#include "runtime/cuda/ops/activation.h"
#include "runtime/cuda/ops/cast.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/warn_once.h"
#include "runtime/graph/ops/conv2d.h"

namespace lockstep::cuda {
namespace {

Conv2dShape shape_of(const OpCall& op) {
  if (op.kind() == OpKind::kConv2d)
    return conv2d_shape(op.input_shape(0), op.input_shape(1), op.attributes<Conv2dAttributes>());
  return conv2d_shape(
      op.input_shape(1), op.input_shape(2), op.attributes<Conv2dBackwardAttributes>().forward);
}

bool supports_shape(const OpCall& op) { return conv2d_supports(shape_of(op)); }

// What is planned for cuDNN is the same with TF32.
CudnnConv2dKey planned_key(const OpCall& op, Conv2dPass pass) {
  return {shape_of(op), op.input_dtype(0), false, pass};
}
CudnnConv2dKey key_of(const OpCall& call, Conv2dPass pass) {
  return {shape_of(call), call.input_dtype(0), context_of(call).tf32, pass};
}

// Whether cuDNN can; that it cannot is said once for each reason.
bool on_cudnn(const OpCall& call, const CudnnConv2dKey& key) {
  CudnnConv2d& cudnn = *context_of(call).cudnn_conv2d;
  if (cudnn.supports(key)) return true;
  warn_once("a convolution by the own kernel, which is slower than cuDNN's: " + cudnn.why_not());
  return false;
}

// ---- Forward ----

size_t cudnn_workspace(const OpCall& op) {
  return cudnn_conv2d_workspace_bytes(planned_key(op, Conv2dPass::kForward));
}

// With as much of the epilogue as cuDNN knows.
CudnnConv2dKey whole_key(const OpCall& call) {
  CudnnConv2dKey key = key_of(call, Conv2dPass::kForward);
  key.bias = call.has_input(2);
  key.relu = call.attributes<Conv2dAttributes>().activation == Activation::kRelu;
  return key;
}
bool has_whole(const OpCall& call) {
  return context_of(call).cudnn_conv2d->supports(whole_key(call));
}
bool has_cudnn(const OpCall& call) { return on_cudnn(call, key_of(call, Conv2dPass::kForward)); }

void run_on_cudnn(const OpCall& call, const CudnnConv2dKey& key) {
  context_of(call).cudnn_conv2d->run(key,
                                     {.x = call.input<std::byte>(0),
                                      .w = call.input<std::byte>(1),
                                      .y = call.output<std::byte>(0),
                                      .bias = call.input<std::byte>(2)},
                                     call.workspace());
}

// Over y.
void run_activation(const OpCall& call, const Conv2dShape& shape) {
  const Activation activation = call.attributes<Conv2dAttributes>().activation;
  if (activation == Activation::kNone) return;
  by_type(call.input_dtype(0), [&]<typename T>() {
    T* const y = call.output<T>(0);
    activation_forward<T>(
        {.activation = activation, .n = shape.out_pixels() * shape.outputs, .x = y, .y = y},
        stream_of(call));
  });
}

void run_whole(const OpCall& call) {
  const CudnnConv2dKey key = whole_key(call);
  run_on_cudnn(call, key);
  if (!key.relu) run_activation(call, key.shape);
}

void run_cudnn(const OpCall& call) {
  const CudnnConv2dKey key = key_of(call, Conv2dPass::kForward);
  run_on_cudnn(call, key);
  by_type(key.dtype, [&]<typename T>() {
    if (call.has_input(2))
      add_bias<T>(call.input<T>(2),
                  key.shape.out_pixels(),
                  key.shape.outputs,
                  call.output<T>(0),
                  stream_of(call));
  });
  run_activation(call, key.shape);
}

void run_own(const OpCall& call) {
  const Conv2dShape shape = shape_of(call);
  by_type(call.input_dtype(0), [&]<typename T>() {
    conv2d_forward<T>(shape,
                      call.input<T>(0),
                      call.input<T>(1),
                      call.input<T>(2),
                      call.output<T>(0),
                      stream_of(call));
  });
  run_activation(call, shape);
}

// ---- Backward: two halves, which leave nothing to each other and are chosen each for itself ----

// One way to compute a half.
struct Half {
  void (*run)(const OpCall& call);
  size_t (*workspace_bytes)(const OpCall& op);
  bool (*supports)(const OpCall& op);
  bool (*available)(const OpCall& op);
};

size_t no_workspace(const OpCall&) { return 0; }
bool always(const OpCall&) { return true; }
bool is_linear(const OpCall& op) { return shape_of(op).is_linear(); }
bool is_not_linear(const OpCall& op) { return !is_linear(op); }

constexpr Half kInputOnCudnn = {
    .run =
        [](const OpCall& call) {
          if (!call.has_output(0)) return;
          context_of(call).cudnn_conv2d->run(key_of(call, Conv2dPass::kBackwardInput),
                                             {.x = call.output<std::byte>(0),
                                              .w = call.input<std::byte>(2),
                                              .y = call.input<std::byte>(0)},
                                             call.workspace());
        },
    .workspace_bytes =
        [](const OpCall& op) {
          return cudnn_conv2d_workspace_bytes(planned_key(op, Conv2dPass::kBackwardInput));
        },
    .supports = always,
    .available =
        [](const OpCall& call) {
          return !call.has_output(0) || on_cudnn(call, key_of(call, Conv2dPass::kBackwardInput));
        }};

constexpr Half kInputByOwn = {.run =
                                  [](const OpCall& call) {
                                    if (!call.has_output(0)) return;
                                    by_type(call.input_dtype(0), [&]<typename T>() {
                                      conv2d_backward_input<T>(shape_of(call),
                                                               call.input<T>(0),
                                                               call.input<T>(2),
                                                               call.output<T>(0),
                                                               stream_of(call));
                                    });
                                  },
                              .workspace_bytes = no_workspace,
                              .supports = always,
                              .available = always};

bool accumulates(const OpCall& op) {
  return op.attributes<Conv2dBackwardAttributes>().accumulate_weight;
}

// d_w of a 1x1 convolution as one product.
Product product_of(const OpCall& call) {
  const Conv2dShape shape = shape_of(call);
  return {.m = shape.outputs,
          .n = shape.channels,
          .k = shape.pixels(),
          .transpose_a = true,
          .in = call.input_dtype(0),
          .out = DType::kF32,
          .accumulate = accumulates(call),
          .tf32 = context_of(call).tf32};
}

constexpr Half kWeightOnCublaslt = {
    .run =
        [](const OpCall& call) {
          context_of(call).matmul->run(product_of(call),
                                       {.a = call.input<std::byte>(0),
                                        .b = call.input<std::byte>(1),
                                        .out = call.output<std::byte>(1)});
        },
    .workspace_bytes = no_workspace,
    .supports = is_linear,
    .available =
        [](const OpCall& call) {
          const Product product = product_of(call);
          if (context_of(call).matmul->supports(product)) return true;
          warn_once(fmt::format(
              "the gradient of a 1x1 convolution's weights by the own kernel, which is slower: "
              "cuBLASLt has no algorithm for {} x {} outputs and channels in {}",
              product.m,
              product.n,
              name_of(product.in)));
          return false;
        }};

void run_weight_on_cudnn(const OpCall& call, const CudnnConv2dKey& key, void* d_w) {
  context_of(call).cudnn_conv2d->run(
      key,
      {.x = call.input<std::byte>(1), .w = d_w, .y = call.input<std::byte>(0)},
      call.workspace());
}

// Stored as floats at once; floats are so anyhow.
CudnnConv2dKey wide_key(const OpCall& call) {
  CudnnConv2dKey key = key_of(call, Conv2dPass::kBackwardWeight);
  key.wide = key.dtype != DType::kF32;
  return key;
}

bool has_wide(const OpCall& call) {
  return !accumulates(call) && context_of(call).cudnn_conv2d->supports(wide_key(call));
}

constexpr Half kWeightOnCudnn = {
    .run =
        [](const OpCall& call) {
          run_weight_on_cudnn(call, wide_key(call), call.output<std::byte>(1));
        },
    .workspace_bytes =
        [](const OpCall& op) {
          return cudnn_conv2d_workspace_bytes(planned_key(op, Conv2dPass::kBackwardWeight));
        },
    .supports = is_not_linear,
    .available = has_wide};

// Before the gradient of w as cuDNN stores it.
size_t narrow_gradient_offset(const OpCall& op) {
  constexpr size_t kAlignment = 256;
  const auto key = planned_key(op, Conv2dPass::kBackwardWeight);
  return (cudnn_conv2d_workspace_bytes(key) + kAlignment - 1) / kAlignment * kAlignment;
}

// Stored in the images' type, and widened.
constexpr Half kWeightWidened = {
    .run =
        [](const OpCall& call) {
          const CudnnConv2dKey key = key_of(call, Conv2dPass::kBackwardWeight);
          std::byte* const narrow = call.workspace() + narrow_gradient_offset(call);
          run_weight_on_cudnn(call, key, narrow);
          by_type(key.dtype, [&]<typename T>() {
            widen<T>(reinterpret_cast<const T*>(narrow),
                     accumulates(call),
                     call.output<float>(1),
                     key.shape.outputs * key.shape.patch(),
                     stream_of(call));
          });
        },
    .workspace_bytes =
        [](const OpCall& op) {
          const Conv2dShape shape = shape_of(op);
          return narrow_gradient_offset(op) +
                 static_cast<size_t>(shape.outputs * shape.patch()) * size_of(op.input_dtype(0));
        },
    .supports = is_not_linear,
    .available =
        [](const OpCall& call) {
          CudnnConv2d& cudnn = *context_of(call).cudnn_conv2d;
          const CudnnConv2dKey key = key_of(call, Conv2dPass::kBackwardWeight);
          if (!on_cudnn(call, key)) return false;
          // Channels that cuDNN pads, as the first layer's 3, are known to go this way.
          if (key.dtype != DType::kF32 && !accumulates(call) && key.shape.channels % 8 == 0 &&
              !cudnn.supports(wide_key(call)))
            warn_once(fmt::format("gradients of convolutions' weights are rounded to {}: {}",
                                  name_of(key.dtype),
                                  cudnn.why_not()));
          return true;
        }};

constexpr Half kWeightByOwn = {
    .run =
        [](const OpCall& call) {
          by_type(call.input_dtype(0), [&]<typename T>() {
            conv2d_backward_weight<T>(shape_of(call),
                                      call.input<T>(0),
                                      call.input<T>(1),
                                      accumulates(call),
                                      call.output<float>(1),
                                      call.workspace<float>(),
                                      stream_of(call));
          });
        },
    .workspace_bytes = [](const OpCall& op) { return conv2d_workspace_bytes(shape_of(op)); },
    .supports = always,
    .available = always};

template <const Half& kInput, const Half& kWeight>
void run_backward(const OpCall& call) {
  kInput.run(call);
  kWeight.run(call);
  float* const d_bias = call.output<float>(2);
  if (d_bias == nullptr) return;
  const Conv2dShape shape = shape_of(call);
  by_type(call.input_dtype(0), [&]<typename T>() {
    column_sum<T>(call.input<T>(0),
                  shape.out_pixels(),
                  shape.outputs,
                  shape.outputs,
                  call.attributes<Conv2dBackwardAttributes>().accumulate_bias,
                  d_bias,
                  call.workspace<float>(),
                  stream_of(call));
  });
}

template <const Half& kInput, const Half& kWeight>
constexpr Implementation backward(const char* name) {
  return {OpKind::kConv2dBackward,
          name,
          run_backward<kInput, kWeight>,
          [](const OpCall& op) {
            const Conv2dShape shape = shape_of(op);
            const size_t sums = op.has_output(2)
                                    ? column_sum_workspace_bytes(shape.out_pixels(), shape.outputs)
                                    : 0;
            return std::max({kInput.workspace_bytes(op), kWeight.workspace_bytes(op), sums});
          },
          [](const OpCall& op) { return supports_shape(op) && kWeight.supports(op); },
          // null: anywhere
          &kInput == &kInputByOwn && &kWeight == &kWeightByOwn
              ? nullptr
              : +[](const OpCall& op) { return kInput.available(op) && kWeight.available(op); }};
}

constexpr Implementation kRows[] = {
    {OpKind::kConv2d, "cudnn with epilogue", run_whole, cudnn_workspace, supports_shape, has_whole},
    {OpKind::kConv2d, "cudnn", run_cudnn, cudnn_workspace, supports_shape, has_cudnn},
    {.kind = OpKind::kConv2d, .name = "own", .run = run_own, .supports = supports_shape},
    backward<kInputOnCudnn, kWeightOnCublaslt>("cudnn, cublaslt"),
    backward<kInputOnCudnn, kWeightOnCudnn>("cudnn, cudnn"),
    backward<kInputOnCudnn, kWeightWidened>("cudnn, cudnn widened"),
    backward<kInputOnCudnn, kWeightByOwn>("cudnn, own"),
    backward<kInputByOwn, kWeightOnCublaslt>("own, cublaslt"),
    backward<kInputByOwn, kWeightOnCudnn>("own, cudnn"),
    backward<kInputByOwn, kWeightWidened>("own, cudnn widened"),
    backward<kInputByOwn, kWeightByOwn>("own, own"),
};

}  // namespace

constinit const Implementations kCudaConv2d = kRows;

}  // namespace lockstep::cuda
