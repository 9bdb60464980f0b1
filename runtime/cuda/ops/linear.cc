// Linear layers as cuBLASLt products: bias and activation are in the epilogue if cuBLASLt has it,
// GELU only if plan/fused_gelu.h allows it. Otherwise a separate kernel applies them to the
// product. Products for which cuBLASLt has no algorithm use the plain kernel.
#include "runtime/graph/ops/linear.h"

#include <fmt/core.h>

#include "runtime/base/error.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/flat/column_sum.h"
#include "runtime/cuda/halves.h"
#include "runtime/cuda/ops/activation.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/multiply.h"
#include "runtime/cuda/plan/fused_gelu.h"
#include "runtime/cuda/plan/products.h"
#include "runtime/cuda/warn_once.h"

namespace lockstep::cuda {
namespace {

// Arrays are passed as bytes; a product gets their type separately.
using Forward = graph::LinearForward<std::byte>;
using Backward = graph::LinearBackward<std::byte>;

bool has_algorithm(const graph::OpCall& call, const Product& product) {
  return context_of(call).matmul->supports(product);
}

// Whether there is an algorithm for the product. If not, the plain kernel remains: logs a warning.
bool has_last_algorithm(const graph::OpCall& call, const Product& product) {
  if (has_algorithm(call, product)) return true;
  warn_once(
      fmt::format("a product of {} x {} x {} in {} uses the native kernel, which is slow: cuBLASLt "
                  "has no algorithm for it ({})",
                  product.m,
                  product.n,
                  product.k,
                  name_of(product.in),
                  context_of(call).matmul->why_not(product)));
  return false;
}

bool gelu_is_fused(const graph::OpCall& call) {
  return fuses_gelu(context_of(call).capability, call.input_dtype(graph::LinearIn::kX));
}

// ---- Forward ----

Product product_of_forward(const graph::OpCall& call, Epilogue epilogue) {
  const Forward op{call};
  const DType dtype = call.input_dtype(graph::LinearIn::kX);
  return {.m = op.shape.rows,
          .n = op.padded_outputs,
          .k = op.shape.inputs,
          .stride_out = op.stride,
          .transpose_b = true,
          .in = dtype,
          .out = dtype,
          .tf32 = context_of(call).tf32,
          .epilogue = epilogue,
          .lanes = call.lanes().count,
          .pass = context_of(call).lanes_per_pass};
}

// Whether bias and activation fit in the epilogue. cuBLASLt has activations only after a bias.
bool has_activation_epilogue(const graph::OpCall& op) {
  const Activation activation = Forward{op}.activation;
  return op.has_input(graph::LinearIn::kBias) &&
         (activation == Activation::kRelu || activation == Activation::kGeluTanh);
}

Product activated_product(const graph::OpCall& call) {
  if (Forward{call}.activation == Activation::kRelu)
    return product_of_forward(call, Epilogue::kBiasRelu);
  return product_of_forward(
      call,
      call.has_output(graph::LinearOut::kPre) ? Epilogue::kBiasGeluSaved : Epilogue::kBiasGelu);
}

bool activation_is_fused(const graph::OpCall& call) {
  const bool gelu = Forward{call}.activation == Activation::kGeluTanh;
  return (!gelu || gelu_is_fused(call)) && has_algorithm(call, activated_product(call));
}

void run_activated(const graph::OpCall& call) {
  const Forward op{call};
  multiply(call,
           activated_product(call),
           {.a = op.x, .b = op.weight, .out = op.y, .bias = op.bias, .saved = op.pre});
}

// The product with only the bias in the epilogue.
Product biased_product(const graph::OpCall& call) {
  return product_of_forward(
      call, call.has_input(graph::LinearIn::kBias) ? Epilogue::kBias : Epilogue::kNone);
}

bool has_biased_product(const graph::OpCall& call) {
  return has_last_algorithm(call, biased_product(call));
}

template <Multiply kMultiply>
void run_forward(const graph::OpCall& call) {
  const Forward op{call};
  std::byte* const sums = op.pre != nullptr ? op.pre : op.y;  // input of the activation
  kMultiply(call, biased_product(call), {.a = op.x, .b = op.weight, .out = sums, .bias = op.bias});
  if (op.activation == Activation::kNone) return;
  LOCKSTEP_CHECK(op.stride == op.shape.outputs, "only logits have padded rows");
  by_type(call.input_dtype(graph::LinearIn::kX), [&]<typename T>() {
    activation_forward<T>({.activation = op.activation,
                           .n = op.shape.rows * op.shape.outputs,
                           .x = reinterpret_cast<const T*>(sums),
                           .y = reinterpret_cast<T*>(op.y)},
                          stream_of(call));
  });
}

// ---- Backward: d_x = d_y weight, times the derivative of the activation before ----

Product product_of_input(const graph::OpCall& call, Epilogue epilogue) {
  const Backward op{call};
  const DType dtype = call.input_dtype(graph::LinearBackwardIn::kDY);
  return {.m = op.shape.rows,
          .n = op.shape.inputs,
          .k = op.padded_outputs,
          .stride_a = op.stride,
          .in = dtype,
          .out = dtype,
          .tf32 = context_of(call).tf32,
          .epilogue = epilogue,
          .lanes = call.lanes().count,
          .pass = context_of(call).lanes_per_pass};
}

constexpr Half kInputWithGelu = {
    .run =
        [](const graph::OpCall& call) {
          const Backward op{call};
          multiply(call,
                   product_of_input(call, Epilogue::kGeluGradient),
                   {.a = op.d_y,
                    .b = op.weight,
                    .out = op.d_x,
                    .saved = const_cast<std::byte*>(op.saved)});
        },
    .supports =
        [](const graph::OpCall& op) {
          return op.has_output(graph::LinearBackwardOut::kDX) &&
                 Backward{op}.input_activation == Activation::kGeluTanh;
        },
    .available =
        [](const graph::OpCall& call) {
          return gelu_is_fused(call) &&
                 has_algorithm(call, product_of_input(call, Epilogue::kGeluGradient));
        }};

template <Multiply kMultiply>
void run_input(const graph::OpCall& call) {
  const Backward op{call};
  if (op.d_x == nullptr) return;
  kMultiply(
      call, product_of_input(call, Epilogue::kNone), {.a = op.d_y, .b = op.weight, .out = op.d_x});
  if (op.input_activation == Activation::kNone) return;
  by_type(call.input_dtype(graph::LinearBackwardIn::kDY), [&]<typename T>() {
    T* const d_x = reinterpret_cast<T*>(op.d_x);
    activation_backward<T>({.activation = op.input_activation,
                            .n = op.shape.rows * op.shape.inputs,
                            .d_y = d_x,
                            .saved = reinterpret_cast<const T*>(op.saved),
                            .d_x = d_x},
                           stream_of(call));
  });
}

constexpr Half kInput = {.run = run_input<multiply>, .available = [](const graph::OpCall& call) {
                           return !call.has_output(graph::LinearBackwardOut::kDX) ||
                                  has_last_algorithm(call, product_of_input(call, Epilogue::kNone));
                         }};
constexpr Half kInputPlainly = {.run = run_input<multiply_plainly>};

// ---- Backward: d_weight = d_y^T x and d_bias, of each lane ----

Product product_of_weight(const graph::OpCall& call, Epilogue epilogue) {
  const Backward op{call};
  return {.m = op.padded_outputs,
          .n = op.shape.inputs,
          .k = op.shape.rows / call.lanes().count,
          .stride_a = op.stride,
          .transpose_a = true,
          .in = call.input_dtype(graph::LinearBackwardIn::kDY),
          .out = DType::kF32,
          .accumulate = op.accumulate_weight,
          .tf32 = context_of(call).tf32,
          .epilogue = epilogue};
}

// The products of all lanes at once.
Product products_of_weights(const graph::OpCall& call) {
  const Backward op{call};
  Product product = product_of_weight(call, Epilogue::kNone);
  product.batch = product.lanes = call.lanes().count;
  product.pass = context_of(call).lanes_per_pass;
  product.lanes_are = Product::Lanes::kBatch;
  if (product.batch == 1) return product;
  product.batch_a = product.k * op.stride;
  product.batch_b = product.k * op.shape.inputs;
  product.batch_out = call.lanes().gradient_bytes / static_cast<int64_t>(sizeof(float));
  return product;
}

// Calls f with the arguments of each lane.
template <typename F>
void each_lane(const graph::OpCall& call, F f) {
  Backward op{call};
  const auto [lanes, gradient_bytes] = call.lanes();
  op.shape.rows /= lanes;
  const auto bytes = [&](graph::InputName input, int64_t elements) {
    return elements * static_cast<int64_t>(size_of(call.input_dtype(input)));
  };
  for (int lane = 0; lane < lanes; ++lane) {
    f(op);
    op.d_y += bytes(graph::LinearBackwardIn::kDY, op.shape.rows * op.stride);
    op.x += bytes(graph::LinearBackwardIn::kDY, op.shape.rows * op.shape.inputs);
    for (float** gradient : {&op.d_weight, &op.d_bias})
      if (*gradient != nullptr) *gradient += gradient_bytes / static_cast<int64_t>(sizeof(float));
  }
}

// The product reads everything that the gradient of the bias sums.
constexpr Half kWeightWithBias = {
    .run =
        [](const graph::OpCall& call) {
          each_lane(call, [&](const Backward& op) {
            multiply(call,
                     product_of_weight(call, Epilogue::kBiasGradient),
                     {.a = op.d_y, .b = op.x, .out = op.d_weight, .bias_gradient = op.d_bias});
          });
        },
    .supports =
        [](const graph::OpCall& op) {
          return op.has_output(graph::LinearBackwardOut::kDWeight) &&
                 op.has_output(graph::LinearBackwardOut::kDBias) && !Backward{op}.accumulate_bias;
        },
    .available =
        [](const graph::OpCall& call) {
          return has_algorithm(call, product_of_weight(call, Epilogue::kBiasGradient));
        }};

template <Multiply kMultiply>
void run_weight(const graph::OpCall& call) {
  const Backward all{call};
  if (all.d_weight != nullptr)
    kMultiply(call, products_of_weights(call), {.a = all.d_y, .b = all.x, .out = all.d_weight});
  if (all.d_bias == nullptr) return;
  by_type(call.input_dtype(graph::LinearBackwardIn::kDY), [&]<typename T>() {
    each_lane(call, [&](const Backward& op) {
      column_sum<T>(reinterpret_cast<const T*>(op.d_y),
                    op.shape.rows,
                    op.shape.outputs,
                    op.stride,
                    op.accumulate_bias,
                    op.d_bias,
                    reinterpret_cast<float*>(op.workspace),
                    context_of(call));
    });
  });
}

constexpr Half kWeight = {.run = run_weight<multiply>,
                          .workspace_bytes = linear_backward_workspace,
                          .available = [](const graph::OpCall& call) {
                            return !call.has_output(graph::LinearBackwardOut::kDWeight) ||
                                   has_last_algorithm(call, products_of_weights(call));
                          }};
constexpr Half kWeightPlainly = {.run = run_weight<multiply_plainly>,
                                 .workspace_bytes = linear_backward_workspace};

constexpr graph::OpKind kBackward = graph::OpKind::kLinearBackward;
constexpr exec::Implementation kRows[] = {
    exec::row<run_activated, exec::no_workspace, has_activation_epilogue, activation_is_fused>(
        graph::OpKind::kLinear, "cublaslt with activation"),
    exec::row<run_forward<multiply>, exec::no_workspace, exec::any_op, has_biased_product>(
        graph::OpKind::kLinear, "cublaslt"),
    exec::row<run_forward<multiply_plainly>>(graph::OpKind::kLinear, "plain"),
    both<kBackward, kInputWithGelu, kWeightWithBias>("cublaslt with gelu, cublaslt with bias"),
    both<kBackward, kInputWithGelu, kWeight>("cublaslt with gelu, cublaslt"),
    both<kBackward, kInputWithGelu, kWeightPlainly>("cublaslt with gelu, plain"),
    both<kBackward, kInput, kWeightWithBias>("cublaslt, cublaslt with bias"),
    both<kBackward, kInput, kWeight>("cublaslt, cublaslt"),
    both<kBackward, kInput, kWeightPlainly>("cublaslt, plain"),
    both<kBackward, kInputPlainly, kWeightWithBias>("plain, cublaslt with bias"),
    both<kBackward, kInputPlainly, kWeight>("plain, cublaslt"),
    both<kBackward, kInputPlainly, kWeightPlainly>("plain, plain"),
};

}  // namespace

constinit const exec::Implementations kCudaLinear = kRows;

}  // namespace lockstep::cuda
