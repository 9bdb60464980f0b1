// Linear layers as cuBLASLt products: bias and activation in the epilogue where it has them, else
// by a kernel of their own over the product.
#include "runtime/graph/ops/linear.h"
#include "runtime/base/error.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/flat/column_sum.h"
#include "runtime/cuda/matmul/matmul.h"
#include "runtime/cuda/ops/activation.h"
#include "runtime/cuda/ops/implementations.h"

namespace lockstep::cuda {
namespace {

// The epilogue that does all of bias and activation, if cuBLASLt has such a one.
Epilogue whole_epilogue(Activation activation, bool bias, bool saved) {
  if (!bias) return Epilogue::kNone;
  switch (activation) {
    case Activation::kRelu: return Epilogue::kBiasRelu;
    case Activation::kGeluTanh: return saved ? Epilogue::kBiasGeluSaved : Epilogue::kBiasGelu;
    default: return Epilogue::kBias;
  }
}

bool applies(Epilogue epilogue, Activation activation) {
  switch (epilogue) {
    case Epilogue::kBiasRelu: return activation == Activation::kRelu;
    case Epilogue::kBiasGelu:
    case Epilogue::kBiasGeluSaved: return activation == Activation::kGeluTanh;
    default: return activation == Activation::kNone;
  }
}

void run_linear(const OpCall& call) {
  auto& context = context_of(call);
  const Activation activation = call.attributes<LinearAttributes>().activation;
  const DType dtype = call.input_dtype(0);
  const auto* bias = call.input<std::byte>(2);
  auto *y = call.output<std::byte>(0), *pre = call.output<std::byte>(1);
  // Images are read as rows.
  Product product{.m = call.input_shape(0).elements() / call.input_shape(1)[1],
                  .n = call.input_shape(1)[0],
                  .k = call.input_shape(1)[1],
                  .stride_out = call.output_stride(0),
                  .transpose_b = true,
                  .in = dtype,
                  .out = dtype,
                  .tf32 = context.tf32,
                  .epilogue = whole_epilogue(activation, bias != nullptr, pre != nullptr)};
  if (!context.matmul->supports(product) && !applies(product.epilogue, Activation::kNone))
    product.epilogue = Epilogue::kBias;
  const bool whole = applies(product.epilogue, activation);
  // Without an activation in the epilogue the product is what the activation reads.
  auto* const out = whole || pre == nullptr ? y : pre;
  context.matmul->run(product,
                      {.a = call.input<std::byte>(0),
                       .b = call.input<std::byte>(1),
                       .out = out,
                       .bias = bias,
                       .saved = whole ? pre : nullptr});
  if (whole) return;
  LOCKSTEP_CHECK(call.output_stride(0) == product.n, "only logits have padded rows ");
  by_type(dtype, [&]<typename T>() {
    activation_forward<T>({.activation = activation,
                           .n = product.m * product.n,
                           .x = reinterpret_cast<const T*>(out),
                           .y = reinterpret_cast<T*>(y)},
                          context.stream);
  });
}

size_t linear_backward_workspace(const OpCall& op) {
  if (!op.has_output(2)) return 0;
  const Shape& d_y = op.input_shape(0);
  return column_sum_workspace_bytes(d_y.rows(), d_y.columns());
}

// d_x = d_y weight, times the derivative of the activation before, where there is one.
void run_input_gradient(const OpCall& call, std::byte* d_x) {
  auto& context = context_of(call);
  const Activation activation = call.attributes<LinearBackwardAttributes>().input_activation;
  const DType dtype = call.input_dtype(0);
  const Shape& weight = call.input_shape(2);
  Product product{.m = call.input_shape(1).elements() / weight[1],
                  .n = weight[1],
                  .k = weight[0],
                  .stride_a = call.input_stride(0),
                  .in = dtype,
                  .out = dtype,
                  .tf32 = context.tf32};
  if (activation == Activation::kGeluTanh) product.epilogue = Epilogue::kGeluGradient;
  if (!context.matmul->supports(product)) product.epilogue = Epilogue::kNone;
  context.matmul->run(product,
                      {.a = call.input<std::byte>(0),
                       .b = call.input<std::byte>(2),
                       .out = d_x,
                       .saved = const_cast<std::byte*>(call.input<std::byte>(3))});
  if (activation == Activation::kNone || product.epilogue != Epilogue::kNone) return;
  by_type(dtype, [&]<typename T>() {
    activation_backward<T>({.activation = activation,
                            .n = product.m * product.n,
                            .d_y = reinterpret_cast<const T*>(d_x),
                            .saved = call.input<T>(3),
                            .d_x = reinterpret_cast<T*>(d_x)},
                           context.stream);
  });
}

void run_linear_backward(const OpCall& call) {
  auto& context = context_of(call);
  const auto& attributes = call.attributes<LinearBackwardAttributes>();
  const DType dtype = call.input_dtype(0);
  const Shape& weight = call.input_shape(2);
  const int64_t rows = call.input_shape(0).rows(), stride = call.input_stride(0);
  if (auto* d_x = call.output<std::byte>(0)) run_input_gradient(call, d_x);
  float* const d_bias = call.output<float>(2);
  Product product{.m = weight[0],
                  .n = weight[1],
                  .k = rows,
                  .stride_a = stride,
                  .transpose_a = true,
                  .in = dtype,
                  .out = DType::kF32,
                  .accumulate = attributes.accumulate_weight,
                  .tf32 = context.tf32};
  // The product reads all that the bias' gradient sums.
  if (d_bias != nullptr && !attributes.accumulate_bias) product.epilogue = Epilogue::kBiasGradient;
  if (!context.matmul->supports(product)) product.epilogue = Epilogue::kNone;
  context.matmul->run(product,
                      {.a = call.input<std::byte>(0),
                       .b = call.input<std::byte>(1),
                       .out = call.output<std::byte>(1),
                       .bias_gradient = d_bias});
  if (d_bias == nullptr || product.epilogue != Epilogue::kNone) return;
  by_type(dtype, [&]<typename T>() {
    column_sum<T>(call.input<T>(0),
                  rows,
                  weight[0],
                  stride,
                  attributes.accumulate_bias,
                  d_bias,
                  reinterpret_cast<float*>(call.workspace()),
                  context.stream);
  });
}

constexpr Implementation kLinearRows[] = {
    {OpKind::kLinear, "cublaslt", run_linear},
    {OpKind::kLinearBackward, "cublaslt", run_linear_backward, linear_backward_workspace},
};

}  // namespace

constinit const Implementations kCudaLinear = kLinearRows;

}  // namespace lockstep::cuda
