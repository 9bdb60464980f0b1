#include "runtime/cpu/conv2d/conv2d.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/conv2d/conv2d_gather.h"
#include "runtime/cpu/conv2d/conv2d_parts.h"
#include "runtime/cpu/conv2d/conv2d_strips.h"
#include "runtime/cpu/conv2d/conv2d_winograd.h"
#include "runtime/cpu/matmul/gemm_blocking.h"

// The forward convolution and the gradient of the input. Each is one Gather (conv2d_gather.h). The
// gradient of a strided convolution is one Gather for each phase of the two axes. Images with few
// channels are computed by strips (conv2d_strips.h): each strip is a Gather whose taps are the
// kernel's rows.

#ifndef LOCKSTEP_RUNTIME_CPU_CONV2D_SCRATCH
#define LOCKSTEP_RUNTIME_CPU_CONV2D_SCRATCH
namespace lockstep::cpu {
inline WorkerGrid workers_of(const Gather& g, int64_t threads) {
  return arrange_workers(threads, g.pixels(), g.columns, g.taps() * g.depth);
}
inline GatherScratch strip_scratch(const Strips& strips) {
  const graph::Conv2dShape& s = strips.shape;
  return {s.kernel_h, strips.depth(), strips.rows * s.out_width(), s.outputs};
}
// Bytes of a worker's copy of a strip and of the scratch memory of its Gather.
inline int64_t forward_strips_bytes(const Strips& strips) {
  return strips.floats() * static_cast<int64_t>(sizeof(float)) + strip_scratch(strips).bytes();
}
}  // namespace lockstep::cpu
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/conv2d/conv2d.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/conv2d/conv2d_gather-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

void gather_all(const Gather& g, char* workspace) {
  const WorkerGrid grid = workers_of(g, compute_threads());
  const GatherScratch scratch(g.taps(), g.depth, g.pixels(), g.columns);
  for_each_worker(grid.workers(), [&](int64_t worker) HWY_ATTR {
    gather_rectangle(g,
                     share(g.pixels(), kRowUnit, worker / grid.columns, grid.rows),
                     share(g.columns, kMaxPanel, worker % grid.columns, grid.columns),
                     workspace + worker * scratch.bytes());
  });
}

HWY_NOINLINE void forward_strip(const Conv2dProduct& op,
                                const Strips& strips,
                                int64_t index,
                                char* scratch) {
  const graph::Conv2dShape& s = op.shape;
  float* const strip = reinterpret_cast<float*>(scratch);
  strips.copy(op.x, index, strip);
  const Range rows = strips.result_rows(index);
  const int64_t at =
      (strips.image(index) * s.out_height() + rows.begin) * s.out_width() * s.outputs;
  Gather g{.images = 1,
           .h = forward_axis(strips.source_rows(), s.kernel_h, s.stride_h, 0, s.dilation_h),
           .w = forward_axis(s.width + 2 * s.pad_w, s.kernel_w, s.stride_w, 0, 1),
           .a = strip,
           .a_strides = {0, strips.stride(), s.channels},
           .depth = strips.depth(),
           .weights = op.w,
           .kernel_w = 1,
           .tap_stride = strips.depth(),
           .weight_stride = s.kernel_h * strips.depth(),
           .transposed = true,
           .columns = s.outputs,
           .c = op.y + at,
           .c_strides = {0, s.out_width() * s.outputs, s.outputs},
           .epilogue = op.epilogue.from(0, at)};
  g.h.pixels = rows.size();
  g.w.taps = 1;
  gather_rectangle(
      g, Range{0, g.pixels()}, Range{0, g.columns}, scratch + strips.floats() * sizeof(float));
}

void forward_strips(const Conv2dProduct& op, char* workspace) {
  const Strips strips(op.shape);
  const int64_t workers = threads_worth(compute_threads(), op.shape.multiply_adds());
  for_each_worker(workers, [&](int64_t worker) HWY_ATTR {
    const Range mine = share(strips.count(), 1, worker, workers);
    for (int64_t index = mine.begin; index < mine.end; ++index) {
      forward_strip(op, strips, index, workspace + worker * forward_strips_bytes(strips));
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(gather_all);
HWY_EXPORT(forward_strips);

namespace {

void run(const graph::Conv2dShape& s, const Gather& g, void* workspace) {
  if (g.pixels() == 0) return;
  if (uses_winograd(s)) return winograd_gather(g, workspace);
  HWY_DYNAMIC_DISPATCH(gather_all)(g, static_cast<char*>(workspace));
}

int64_t gather_bytes(const graph::Conv2dShape& s, const Gather& g, int threads) {
  if (g.pixels() == 0) return 0;
  if (uses_winograd(s)) return WinogradScratch(g, threads).bytes();
  const WorkerGrid grid = workers_of(g, threads);
  return grid.workers() * GatherScratch(g.taps(), g.depth, g.pixels(), g.columns).bytes();
}

}  // namespace

int64_t conv2d_forward_workspace_bytes(const graph::Conv2dShape& s, int threads) {
  if (s.is_linear()) return linear_workspace_bytes(linear_shape(s), threads);
  if (is_depthwise(s)) return depthwise_workspace_bytes(s);
  if (uses_strips(s)) return threads * forward_strips_bytes(Strips(s));
  Conv2dProduct op{};
  op.shape = s;
  return gather_bytes(s, forward_gather(op), threads);
}

int64_t conv2d_workspace_bytes(const graph::Conv2dShape& s, int threads) {
  int64_t bytes = conv2d_forward_workspace_bytes(s, threads);
  if (s.is_linear()) return bytes;
  bytes = std::max(bytes, conv2d_weight_workspace_bytes(s, threads));
  if (is_depthwise(s)) return bytes;
  const graph::Conv2dBackward<float> op = {
      .shape = s, .accumulate_weight = false, .accumulate_bias = false};
  for_each_phase(s, [&](const GatherAxis& h, const GatherAxis& w) {
    bytes = std::max(bytes, gather_bytes(s, backward_gather(op, h, w), threads));
  });
  return bytes;
}

void conv2d_forward(const Conv2dProduct& op, void* workspace) {
  LOCKSTEP_CHECK(reinterpret_cast<uintptr_t>(workspace) % 64 == 0);
  const graph::Conv2dShape& s = op.shape;
  if (s.out_pixels() == 0) return;
  if (s.is_linear()) {
    return linear_forward(LinearProduct<float>{.shape = linear_shape(s),
                                               .x = {op.x, linear_shape(s).inputs},
                                               .w = {op.w, linear_shape(s).inputs},
                                               .epilogue = op.epilogue,
                                               .y = op.y},
                          workspace);
  }
  if (is_depthwise(s)) return depthwise_forward(op, workspace);
  if (uses_strips(s)) {
    return HWY_DYNAMIC_DISPATCH(forward_strips)(op, static_cast<char*>(workspace));
  }
  for_each_group(s, forward_gather(op), [&](const Gather& g) { run(s, g, workspace); });
}

void conv2d_backward_input(const graph::Conv2dBackward<float>& op) {
  const graph::Conv2dShape& s = op.shape;
  if (s.is_linear()) return linear_backward_input(linear_backward(op));
  if (is_depthwise(s)) return depthwise_backward_input(op);
  for_each_phase(s, [&](const GatherAxis& axis_h, const GatherAxis& axis_w) {
    const Gather first = backward_gather(op, axis_h, axis_w);
    for_each_group(s, first, [&](const Gather& g) { run(s, g, op.workspace); });
  });
}

void conv2d_backward_bias(const graph::Conv2dBackward<float>& op) {
  linear_backward_bias(linear_backward(op));
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
