// Shared by the two ways to compute a Gather (conv2d_gather.h). Compiled once per instruction set:
// include it only from a .cc file that Highway's foreach_target.h includes repeatedly.

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_CONV2D_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_CONV2D_PACK_INL_H
#undef LOCKSTEP_RUNTIME_CPU_CONV2D_PACK_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_CONV2D_PACK_INL_H
#endif

#include "hwy/highway.h"
#include "runtime/cpu/conv2d/conv2d_gather.h"
#include "runtime/cpu/matmul/gemm_pack-inl.h"
#include "runtime/cpu/matmul/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// The channels of a padding pixel: as many zeros as are read at a time, of any type.
alignas(64) inline constexpr float kPadding[kDepthBlock] = {};

// Packs the weights of some taps, a range of the depth and the panel that begins at `column`:
// panel[tap][k][columns rounded up to full vectors].
template <typename T, typename Source>
HWY_INLINE void pack_weights(const GatherFrom<T, Source>& g,
                             Range taps,
                             Range depth,
                             int64_t column,
                             int64_t columns,
                             float* panel) {
  const int64_t width = round_up(columns, kVecLanes);
  const bool all = depth.size() == g.depth && g.transposed && g.tap_stride == g.depth &&
                   g.h.tap_step == 1 && g.w.tap_step == 1;
  for (int64_t tap = taps.begin; tap < taps.end; ++tap) {
    const int64_t entry = (g.h.tap_first + tap / g.w.taps * g.h.tap_step) * g.kernel_w +
                          g.w.tap_first + tap % g.w.taps * g.w.tap_step;
    const GemmOperand weights{g.weights + entry * g.tap_stride, g.weight_stride, g.transposed};
    // Taps that are contiguous in memory are packed as if they were one.
    const int64_t length = all ? taps.size() * g.depth : depth.size();
    pack_panel(weights.at(depth.begin, column), columns, length, panel);
    if (all) return;
    panel += length * width;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_CONV2D_PACK_INL_H
