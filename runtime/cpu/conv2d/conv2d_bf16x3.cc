#include "runtime/cpu/conv2d/conv2d_bf16x3.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/conv2d/conv2d_bf16x3_operands.h"
#include "runtime/cpu/conv2d/conv2d_parts.h"
#include "runtime/cpu/conv2d/conv2d_winograd.h"
#include "runtime/cpu/matmul/linear_bf16x3.h"

namespace lockstep::cpu::bf16x3 {
namespace {

void run(const Gather<float>& g, void* workspace) {
  const int64_t chunks = gather_chunks(g);
  if (g.pixels() == 0) return;
  const GatherC c(g);
  if (chunks == 0) {
    for (int64_t i = 0; i < g.pixels(); ++i)
      std::memset(c.row(i), 0, static_cast<size_t>(g.columns) * sizeof(float));
    return;
  }
  multiply_all(GatherA<float>{g},
               GatherB<float>{g},
               c,
               g.pixels(),
               g.columns,
               chunks,
               /*accumulate=*/false,
               workspace);
}

int64_t gather_bytes(const Gather<float>& g, int threads) {
  return split_workspace_bytes(g.pixels(), g.columns, gather_chunks(g), threads);
}

}  // namespace

bool supports(const graph::Conv2dShape& s) {
  // With so few channels, Winograd's transforms save more than the matrix unit.
  if (uses_winograd(s) && std::max(s.channels, s.outputs) <= 64) return false;
  return s.group_channels() >= 32 && s.group_channels() % kTileEdge == 0 && s.group_outputs() >= 32;
}

int64_t conv2d_forward_workspace_bytes(const graph::Conv2dShape& s, int threads) {
  if (s.is_linear()) return bf16x3::linear_workspace_bytes(linear_shape(s), threads);
  Conv2dProduct<float> op{};
  op.shape = s;
  return gather_bytes(forward_gather(op), threads);
}

int64_t conv2d_workspace_bytes(const graph::Conv2dShape& s, int threads) {
  int64_t bytes = bf16x3::conv2d_forward_workspace_bytes(s, threads);
  if (s.is_linear()) return bytes;
  const graph::Conv2dBackward<float> backward = {
      .shape = s, .accumulate_weight = false, .accumulate_bias = false};
  for_each_phase(s, [&](const GatherAxis& h, const GatherAxis& w) {
    const Gather<float> g = backward_gather(backward, h, w);
    bytes = std::max(bytes, gather_bytes(g, threads));
  });
  return std::max(bytes, weight_workspace_bytes<float>(s, threads));
}

void conv2d_forward(const Conv2dProduct<float>& op, void* workspace) {
  LOCKSTEP_CHECK(reinterpret_cast<uintptr_t>(workspace) % 64 == 0);
  const graph::Conv2dShape& s = op.shape;
  if (s.is_linear()) {
    return bf16x3::linear_forward(LinearProduct<float>{.shape = linear_shape(s),
                                                       .x = {op.x, linear_shape(s).inputs},
                                                       .w = {op.w, linear_shape(s).inputs},
                                                       .epilogue = op.epilogue,
                                                       .y = op.y},
                                  workspace);
  }
  for_each_group(s, forward_gather(op), [&](const Gather<float>& g) { run(g, workspace); });
}

void conv2d_backward_input(const graph::Conv2dBackward<float>& op) {
  const graph::Conv2dShape& s = op.shape;
  if (s.is_linear())
    return bf16x3::linear_forward(linear_input_gradient(linear_backward(op)), op.workspace);
  for_each_phase(s, [&](const GatherAxis& axis_h, const GatherAxis& axis_w) {
    const Gather<float> first = backward_gather(op, axis_h, axis_w);
    for_each_group(s, first, [&](const Gather<float>& g) { run(g, op.workspace); });
  });
}

void conv2d_backward_weight(const graph::Conv2dBackward<float>& op) {
  if (op.shape.is_linear()) return bf16x3::linear_backward_weight(linear_backward(op));
  multiply_for_weight(op);
}

}  // namespace lockstep::cpu::bf16x3
