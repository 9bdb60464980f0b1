#include "runtime/cpu/conv2d/conv2d.h"

#include <algorithm>
#include <type_traits>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/conv2d/conv2d_gather.h"
#include "runtime/cpu/conv2d/conv2d_parts.h"
#include "runtime/cpu/conv2d/conv2d_strips.h"
#include "runtime/cpu/conv2d/conv2d_winograd.h"
#include "runtime/cpu/matmul/gemm_blocking.h"
#include "runtime/cpu/stored.h"

// The forward convolution and the gradient of the input. Each is one Gather (conv2d_gather.h). The
// gradient of a strided convolution is one Gather for each phase of the two axes. Images with few
// channels are computed by strips (conv2d_strips.h): each strip is a Gather whose taps are the
// kernel's rows.

#ifndef LOCKSTEP_RUNTIME_CPU_CONV2D_SCRATCH
#define LOCKSTEP_RUNTIME_CPU_CONV2D_SCRATCH
namespace lockstep::cpu {
template <typename T>
WorkerGrid workers_of(const Gather<T>& g, int64_t threads) {
  return arrange_workers(threads, g.pixels(), g.columns, g.taps() * g.depth);
}
template <typename T>
GatherScratch<T, T> scratch_of(const Gather<T>& g) {
  return {g.taps(), g.depth, g.pixels(), g.columns};
}
// A strip is copied in floats.
template <typename T>
GatherScratch<T, float> strip_scratch(const Strips& strips) {
  const graph::Conv2dShape& s = strips.shape;
  return {s.kernel_h, strips.depth(), strips.rows * s.out_width(), s.outputs};
}
// Bytes of a worker's copy of a strip and of the scratch memory of its Gather.
template <typename T>
int64_t forward_strips_bytes(const Strips& strips) {
  return strips.floats() * static_cast<int64_t>(sizeof(float)) + strip_scratch<T>(strips).bytes();
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

template <typename T>
void gather_all(const Gather<T>& g, char* workspace) {
  const WorkerGrid grid = workers_of(g, compute_threads());
  const int64_t scratch = scratch_of(g).bytes();
  for_each_worker(grid.workers(), [&](int64_t worker) HWY_ATTR {
    gather_rectangle(g,
                     share(g.pixels(), kRowUnit, worker / grid.columns, grid.rows),
                     share(g.columns, kMaxPanel, worker % grid.columns, grid.columns),
                     workspace + worker * scratch);
  });
}

void gather_all_kernel(AnyStored<Gather> stored, char* workspace) {
  stored.with([&](const auto& g) HWY_ATTR { gather_all(g, workspace); });
}

template <typename T>
HWY_NOINLINE void forward_strip(const Conv2dProduct<T>& op,
                                const Strips& strips,
                                int64_t index,
                                char* scratch) {
  const graph::Conv2dShape& s = op.shape;
  float* const strip = reinterpret_cast<float*>(scratch);
  strips.copy(op.x, index, strip, [](const T* from, int64_t n, float* to) HWY_ATTR {
    copy_as_floats(from, n, to);
  });
  const Range rows = strips.result_rows(index);
  const int64_t at =
      (strips.image(index) * s.out_height() + rows.begin) * s.out_width() * s.outputs;
  GatherFrom<T, float> g{
      .images = 1,
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

template <typename T>
void forward_strips(const Conv2dProduct<T>& op, char* workspace) {
  const Strips strips(op.shape);
  const int64_t workers = threads_worth(compute_threads(), op.shape.multiply_adds());
  for_each_worker(workers, [&](int64_t worker) HWY_ATTR {
    const Range mine = share(strips.count(), 1, worker, workers);
    for (int64_t index = mine.begin; index < mine.end; ++index) {
      forward_strip(op, strips, index, workspace + worker * forward_strips_bytes<T>(strips));
    }
  });
}

void forward_strips_kernel(AnyStored<Conv2dProduct> stored, char* workspace) {
  stored.with([&](const auto& op) HWY_ATTR { forward_strips(op, workspace); });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(gather_all_kernel);
HWY_EXPORT(forward_strips_kernel);

namespace {

template <typename T>
void run(const graph::Conv2dShape& s, const Gather<T>& g, void* workspace) {
  if (g.pixels() == 0) return;
  if (uses_winograd(s)) return winograd_gather(g, workspace);
  HWY_DYNAMIC_DISPATCH(gather_all_kernel)(g, static_cast<char*>(workspace));
}

template <typename T>
int64_t gather_bytes(const graph::Conv2dShape& s, const Gather<T>& g, int threads) {
  if (g.pixels() == 0) return 0;
  if (uses_winograd(s)) return WinogradScratch(g, threads).bytes();
  return workers_of(g, threads).workers() * scratch_of(g).bytes();
}

// The gradient of the input of a linear layer, which is a product like its forward pass, with
// inputs and outputs exchanged.
graph::LinearShape input_gradient_shape(const graph::LinearShape& s) {
  return {s.rows, s.outputs, s.inputs};
}

}  // namespace

template <typename T>
int64_t conv2d_forward_workspace_bytes(const graph::Conv2dShape& s, int threads) {
  if (s.is_linear()) return linear_workspace_bytes<T>(linear_shape(s), threads);
  if (is_depthwise(s)) return depthwise_workspace_bytes(s);
  if (uses_strips(s)) return threads * forward_strips_bytes<T>(Strips(s));
  Conv2dProduct<T> op{};
  op.shape = s;
  return gather_bytes(s, forward_gather(op), threads);
}

template <typename T>
int64_t conv2d_workspace_bytes(const graph::Conv2dShape& s, int threads) {
  int64_t bytes = conv2d_forward_workspace_bytes<T>(s, threads);
  if (s.is_linear()) {
    return std::is_same_v<T, float> ? bytes
                                    : std::max(bytes,
                                               linear_workspace_bytes<T>(
                                                   input_gradient_shape(linear_shape(s)), threads));
  }
  bytes = std::max(bytes, conv2d_weight_workspace_bytes<T>(s, threads));
  if (is_depthwise(s)) return bytes;
  const graph::Conv2dBackward<T> op = {
      .shape = s, .accumulate_weight = false, .accumulate_bias = false};
  for_each_phase(s, [&](const GatherAxis& h, const GatherAxis& w) {
    bytes = std::max(bytes, gather_bytes(s, backward_gather(op, h, w), threads));
  });
  return bytes;
}

template <typename T>
void conv2d_forward(const Conv2dProduct<T>& op, void* workspace) {
  LOCKSTEP_CHECK(reinterpret_cast<uintptr_t>(workspace) % 64 == 0);
  const graph::Conv2dShape& s = op.shape;
  if (s.out_pixels() == 0) return;
  if (s.is_linear()) {
    return linear_forward(LinearProduct<T>{.shape = linear_shape(s),
                                           .x = {op.x, linear_shape(s).inputs},
                                           .w = {op.w, linear_shape(s).inputs},
                                           .epilogue = op.epilogue,
                                           .y = op.y},
                          workspace);
  }
  if (is_depthwise(s)) return depthwise_forward(op, workspace);
  if (uses_strips(s)) {
    return HWY_DYNAMIC_DISPATCH(forward_strips_kernel)(op, static_cast<char*>(workspace));
  }
  for_each_group(s, forward_gather(op), [&](const Gather<T>& g) { run(s, g, workspace); });
}

template <typename T>
void conv2d_backward_input(const graph::Conv2dBackward<T>& op) {
  const graph::Conv2dShape& s = op.shape;
  if (s.is_linear())
    return linear_forward(linear_input_gradient(linear_backward(op)), op.workspace);
  if (is_depthwise(s)) return depthwise_backward_input(op);
  for_each_phase(s, [&](const GatherAxis& axis_h, const GatherAxis& axis_w) {
    const Gather<T> first = backward_gather(op, axis_h, axis_w);
    for_each_group(s, first, [&](const Gather<T>& g) { run(s, g, op.workspace); });
  });
}

template <typename T>
void conv2d_backward_bias(const graph::Conv2dBackward<T>& op) {
  linear_backward_bias(linear_backward(op));
}

template int64_t conv2d_forward_workspace_bytes<float>(const graph::Conv2dShape&, int);
template int64_t conv2d_forward_workspace_bytes<BFloat16>(const graph::Conv2dShape&, int);
template int64_t conv2d_workspace_bytes<float>(const graph::Conv2dShape&, int);
template int64_t conv2d_workspace_bytes<BFloat16>(const graph::Conv2dShape&, int);
template void conv2d_forward(const Conv2dProduct<float>&, void*);
template void conv2d_forward(const Conv2dProduct<BFloat16>&, void*);
template void conv2d_backward_input(const graph::Conv2dBackward<float>&);
template void conv2d_backward_input(const graph::Conv2dBackward<BFloat16>&);
template void conv2d_backward_bias(const graph::Conv2dBackward<float>&);
template void conv2d_backward_bias(const graph::Conv2dBackward<BFloat16>&);

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
