// Linear layers by the products of matmul/.
#include "runtime/graph/ops/linear.h"

#include "runtime/base/threads.h"
#include "runtime/cpu/matmul/linear.h"
#include "runtime/cpu/matmul/linear_bf16x3.h"
#include "runtime/cpu/ops/activation.h"
#include "runtime/cpu/ops/implementations.h"

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

constexpr Implementation kRows[] = {
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

}  // namespace

constinit const Implementations kCpuLinear = kRows;

}  // namespace lockstep::cpu
