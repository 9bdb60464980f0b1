#include "runtime/cpu/image_normalize.h"

#include <algorithm>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/image_normalize.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// A vector of bytes as floats; `count` of them are there.
HWY_INLINE Vec load_bytes(const uint8_t* from, size_t count) {
  const hn::Rebind<uint8_t, F32> bytes;
  const hn::RebindToSigned<F32> integers;
  HWY_ALIGN uint8_t lanes[kVecLanes] = {};
  if (count < kVecLanes) {
    std::copy_n(from, count, lanes);
    from = lanes;
  }
  return hn::ConvertTo(F32(), hn::PromoteTo(integers, hn::LoadU(bytes, from)));
}

// Elements [begin, end). The channels of kRowLanes pixels fill whole vectors, whose factors repeat:
// scale and offset have (kRowLanes * channels) of them. `begin` is a multiple of that.
void image_normalize_kernel(const uint8_t* x,
                            const float* scale,
                            const float* offset,
                            int64_t channels,
                            int64_t begin,
                            int64_t end,
                            float* y) {
  const int64_t period = static_cast<int64_t>(kRowLanes) * channels;
  for (int64_t first = begin; first < end; first += period) {
    const auto n = static_cast<size_t>(std::min(period, end - first));
    for_each_vector(n, [&](size_t i, auto access) HWY_ATTR {
      const Vec pixels = load_bytes(x + first + i, n - i);
      access.store(hn::MulAdd(pixels, access.load(scale + i), access.load(offset + i)),
                   y + first + i);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(image_normalize_kernel);

namespace {
constexpr int64_t kPeriodPixels = 16;  // the kernel's kRowLanes
}  // namespace

size_t image_normalize_workspace_bytes(int64_t channels) {
  return static_cast<size_t>(2 * kPeriodPixels * channels) * sizeof(float);
}

void image_normalize(int64_t pixels,
                     int64_t channels,
                     const uint8_t* x,
                     const float* mean,
                     const float* std,
                     float* y,
                     void* workspace) {
  const int64_t period = kPeriodPixels * channels;
  float* const scale = static_cast<float*>(workspace);
  float* const offset = scale + period;
  for (int64_t i = 0; i < period; ++i) {
    const double deviation = std[i % channels];
    scale[i] = static_cast<float>(1 / (255 * deviation));
    offset[i] = static_cast<float>(-mean[i % channels] / deviation);
  }
  const int64_t n = pixels * channels;
  const auto kernel = HWY_DYNAMIC_DISPATCH(image_normalize_kernel);
  parallel_for((n + period - 1) / period, grain_rows(period), [&](int64_t begin, int64_t end) {
    kernel(x, scale, offset, channels, begin * period, std::min(n, end * period), y);
  });
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
