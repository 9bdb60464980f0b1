#include "runtime/graph/ops/local_response_norm.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/local_response_norm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// A row is processed in pieces that fit on the stack with the neighbours that they need.
constexpr int64_t kPiece = 256;
constexpr int64_t kHalo = graph::kMaxNormChannels;

// s^-beta. The usual 3/4 needs only square roots; any other exponent uses the C library.
HWY_INLINE Vec inverse_power(Vec s, float beta) {
  if (beta == 0.75f) {
    const Vec root = hn::Sqrt(s);
    return hn::Div(set(1.0f), hn::Mul(root, hn::Sqrt(root)));
  }
  HWY_ALIGN float lanes[kVecLanes];
  hn::Store(s, F32(), lanes);
  for (float& lane : lanes) lane = std::pow(lane, -beta);
  return hn::Load(F32(), lanes);
}

// Copies channels [first, first + n) of a row of `channels`; channels outside the row are zeros.
HWY_INLINE void copy_channels(
    const float* row, int64_t channels, int64_t first, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t c = first + i;
    out[i] = c >= 0 && c < channels ? row[c] : 0.0f;
  }
}

// s of the channel whose window begins at `window`.
template <typename Access>
HWY_INLINE Vec window_scale(const graph::LocalResponseNormAttributes& a,
                            const float* window,
                            Access access) {
  Vec sum = hn::Zero(F32());
  for (int64_t k = 0; k < a.size; ++k) {
    const Vec x = access.load(window + k);
    sum = hn::MulAdd(x, x, sum);
  }
  return hn::MulAdd(sum, set(a.alpha / static_cast<float>(a.size)), set(a.k));
}

void lrn_forward_kernel(const graph::LocalResponseNormForward<float>& op,
                        int64_t begin,
                        int64_t end) {
  const graph::LocalResponseNormAttributes& a = op.window;
  const int64_t channels = op.channels;
  float around[kPiece + kHalo];
  const int64_t before = a.size / 2;
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t first = 0; first < channels; first += kPiece) {
      const int64_t n = std::min(kPiece, channels - first);
      copy_channels(op.x + row * channels, channels, first - before, n + a.size - 1, around);
      for_each_vector(static_cast<size_t>(n), [&](size_t i, auto access) HWY_ATTR {
        const Vec power = inverse_power(window_scale(a, around + i, access), a.beta);
        access.store(hn::Mul(access.load(around + i + before), power),
                     op.y + row * channels + first + static_cast<int64_t>(i));
      });
    }
  }
}

void lrn_backward_kernel(const graph::LocalResponseNormBackward<float>& op,
                         int64_t begin,
                         int64_t end) {
  const graph::LocalResponseNormAttributes& a = op.window;
  const int64_t channels = op.channels;
  // Channel c's window is [c - before, c + after]; the windows that contain c belong to the
  // channels [c - after, c + before].
  const int64_t before = a.size / 2, after = a.size - 1 - before;
  float around[kPiece + 2 * kHalo], gradient[kPiece + kHalo], ratio[kPiece + kHalo];
  const Vec factor = set(-2 * a.alpha * a.beta / static_cast<float>(a.size));
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t first = 0; first < channels; first += kPiece) {
      const int64_t n = std::min(kPiece, channels - first), wide = n + a.size - 1;
      // `around` begins at channel first - after - before, the other arrays at first - after.
      copy_channels(
          op.x + row * channels, channels, first - after - before, wide + a.size - 1, around);
      copy_channels(op.d_y + row * channels, channels, first - after, wide, gradient);
      for_each_vector(static_cast<size_t>(wide), [&](size_t i, auto access) HWY_ATTR {
        const Vec s = window_scale(a, around + i, access);
        const Vec power = inverse_power(s, a.beta), d = access.load(gradient + i);
        const Vec scaled = hn::Mul(d, power);
        access.store(scaled, gradient + i);
        access.store(hn::Div(hn::Mul(scaled, access.load(around + i + before)), s), ratio + i);
      });
      for_each_vector(static_cast<size_t>(n), [&](size_t i, auto access) HWY_ATTR {
        Vec sum = hn::Zero(F32());
        for (int64_t k = 0; k < a.size; ++k) sum = hn::Add(sum, access.load(ratio + i + k));
        const Vec at = access.load(around + i + after + before);
        access.store(hn::MulAdd(hn::Mul(factor, at), sum, access.load(gradient + i + after)),
                     op.d_x + row * channels + first + static_cast<int64_t>(i));
      });
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(lrn_forward_kernel);
HWY_EXPORT(lrn_backward_kernel);

namespace {

void run_forward(const graph::LocalResponseNormForward<float>& op) {
  in_parallel(op.rows, grain_rows(4 * op.channels), HWY_DYNAMIC_DISPATCH(lrn_forward_kernel), op);
}

void run_backward(const graph::LocalResponseNormBackward<float>& op) {
  in_parallel(op.rows, grain_rows(8 * op.channels), HWY_DYNAMIC_DISPATCH(lrn_backward_kernel), op);
}

constexpr exec::Implementation kRows[] = {
    row<run_forward, exec::no_workspace, graph::supports_window>(graph::OpKind::kLocalResponseNorm,
                                                                 "simd"),
    row<run_backward, exec::no_workspace, graph::supports_window>(
        graph::OpKind::kLocalResponseNormBackward, "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuLocalResponseNorm = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
