#pragma once
// The workspaces of ops that multiply matrices.

#include "runtime/cuda/plan/column_sum.h"
#include "runtime/graph/ops/batched_matmul.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/lora.h"
#include "runtime/graph/ops/recurrent.h"

namespace lockstep::cuda {

// The workspace of the gradient of the bias.
inline size_t linear_backward_workspace(const graph::OpCall& op) {
  const graph::LinearShape shape = graph::LinearBackward<std::byte>{op}.shape;
  return op.has_output(graph::LinearBackwardOut::kDBias)
             ? column_sum_workspace_bytes(shape.rows, shape.outputs)
             : 0;
}

inline size_t lora_workspace(const graph::OpCall& call) {
  const graph::LoraSizes sizes = graph::LoraSizes::of(call);
  return static_cast<size_t>(sizes.rows * sizes.inner) *
         size_of(call.input_dtype(graph::LoraAddIn::kY));
}

// Whether several terms are added to 16-bit results. Each addition would round, so they are added
// in floats first.
inline bool adds_in_floats(const graph::OpCall& call) {
  return graph::BatchedMatmul<std::byte>{call}.sizes.sums.count() > 1 &&
         call.output_dtype(graph::BatchedMatmulOut::kY) != DType::kF32;
}
inline size_t batched_matmul_workspace(const graph::OpCall& call) {
  return adds_in_floats(call)
             ? static_cast<size_t>(call.output_shape(graph::BatchedMatmulOut::kY).elements()) *
                   sizeof(float)
             : 0;
}

// The workspace of the backward pass of recurrent layers: d_gates (D, T, N, S H) in the stored
// type; d_h, d_c (N, H) and sums of columns (S H) in float; and the workspace of those sums.
struct RecurrentWorkspace {
  int64_t states;              // floats of d_h, and of d_c
  size_t gates, floats, sums;  // bytes

  static RecurrentWorkspace of(const graph::RecurrentShape& s, DType dtype) {
    const int64_t states = (s.states() + 63) / 64 * 64;
    const auto gates = static_cast<size_t>(s.directions * s.times * s.batch * s.slot_columns());
    return {states,
            aligned_bytes(gates * size_of(dtype)),
            aligned_bytes(static_cast<size_t>(2 * states + s.slot_columns()) * sizeof(float)),
            column_sum_workspace_bytes(s.times * s.batch, s.slot_columns())};
  }
};

inline size_t recurrent_workspace(const graph::OpCall& call) {
  const auto parts = RecurrentWorkspace::of(graph::RecurrentBackward<std::byte>{call}.shape,
                                            call.input_dtype(graph::RecurrentBackwardIn::kX));
  return parts.gates + parts.floats + parts.sums;
}

}  // namespace lockstep::cuda
