#include "runtime/cpu/peak.h"

#include <algorithm>

#include "runtime/base/time.h"
#include "runtime/cpu/matmul/bf16x3.h"
#include "runtime/cpu/matmul/gemm_blocking.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/peak.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Twelve independent chains hide the latency of the multiply-add on every current core. Each has
// another start value, because the compiler would merge equal ones. All numbers stay normal.
double fma_chains(int iterations, float start) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V half = hn::Set(d, 0.5f);
  V a = hn::Set(d, start), b = hn::Add(a, half), c = hn::Add(b, half), e = hn::Add(c, half);
  V f = hn::Add(e, half), g = hn::Add(f, half), h = hn::Add(g, half), i = hn::Add(h, half);
  V j = hn::Add(i, half), k = hn::Add(j, half), l = hn::Add(k, half), m = hn::Add(l, half);
  for (int n = 0; n < iterations; ++n) {
    a = hn::MulAdd(a, half, half);
    b = hn::MulAdd(b, half, half);
    c = hn::MulAdd(c, half, half);
    e = hn::MulAdd(e, half, half);
    f = hn::MulAdd(f, half, half);
    g = hn::MulAdd(g, half, half);
    h = hn::MulAdd(h, half, half);
    i = hn::MulAdd(i, half, half);
    j = hn::MulAdd(j, half, half);
    k = hn::MulAdd(k, half, half);
    l = hn::MulAdd(l, half, half);
    m = hn::MulAdd(m, half, half);
  }
  const V sum =
      hn::Add(hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, e)), hn::Add(hn::Add(f, g), hn::Add(h, i))),
              hn::Add(hn::Add(j, k), hn::Add(l, m)));
  return static_cast<double>(hn::GetLane(sum));
}

double flops_per_iteration() {
  return 2.0 * 12.0 * static_cast<double>(hn::Lanes(hn::ScalableTag<float>()));
}

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
namespace {

HWY_EXPORT(fma_chains);
HWY_EXPORT(flops_per_iteration);

// The largest rate at which `threads` threads do work of `flops` operations each.
template <typename Work>
double best_rate(int threads, double flops, const Work& work) {
  constexpr int kTries = 5;
  double best = 0;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const double begin = now_ms();
    for_each_worker(threads, [&](int64_t) { work(); });
    best = std::max(best, 1000 * threads * flops / (now_ms() - begin));
  }
  return best;
}

}  // namespace

double measure_peak_flops(int threads) {
  constexpr int kIterations = 100000;
  volatile float start = 1.5f;
  return best_rate(threads, HWY_DYNAMIC_DISPATCH(flops_per_iteration)() * kIterations, [&] {
    [[maybe_unused]] volatile double sink = HWY_DYNAMIC_DISPATCH(fma_chains)(kIterations, start);
  });
}

double measure_tile_flops(int threads) {
  constexpr int64_t kTimes = 10000, kFlops = 2 * kTileEdge * kTileEdge * kTileDepth;
  const auto multiply = tile_kernels<BFloat16>().multiply_in_registers;
  if (multiply == nullptr) return 0;
  return best_rate(threads, static_cast<double>(4 * kFlops * kTimes), [&] { multiply(kTimes); });
}

double peak_flops() {
  static const double peak = measure_peak_flops();
  return peak;
}

}  // namespace lockstep::cpu
#endif
