#include "runtime/graph/ops/image_normalize.h"

#include <algorithm>

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/image_normalize.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Loads a vector of bytes as floats; only `count` bytes may be read.
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

struct Factors {
  const float *scale, *offset;  // of the channels of kRowLanes pixels, which fill whole vectors
  int64_t period;               // number of these factors
};

// Normalises n elements from the beginning of a pixel on; if kMix, mixes them with the other
// image's.
template <bool kMix>
HWY_INLINE void normalize_part(const Factors& factors,
                               const uint8_t* x,
                               const uint8_t* other,
                               float mix,
                               int64_t n,
                               float* y) {
  const Vec first_share = set(mix);
  for (int64_t first = 0; first < n; first += factors.period) {
    const auto size = static_cast<size_t>(std::min(factors.period, n - first));
    for_each_vector(size, [&](size_t i, auto access) HWY_ATTR {
      Vec pixels = load_bytes(x + first + i, size - i);
      if constexpr (kMix) {
        const Vec others = load_bytes(other + first + i, size - i);
        pixels = hn::MulAdd(first_share, hn::Sub(pixels, others), others);
      }
      access.store(
          hn::MulAdd(pixels, access.load(factors.scale + i), access.load(factors.offset + i)),
          y + first + i);
    });
  }
}

// Periods [begin, end) of all images; each image begins a new period.
void image_normalize_kernel(const graph::ImageNormalize<float>& op,
                            const graph::LaneContext& lane,
                            const float* scale,
                            const float* offset,
                            int64_t begin,
                            int64_t end) {
  const Factors factors{scale, offset, static_cast<int64_t>(kRowLanes) * op.channels};
  const int64_t elements = op.pixels * op.channels;  // per image
  const int64_t periods = (elements + factors.period - 1) / factors.period;
  const int64_t mixed = lane.mix == 1 ? 0 : std::min(op.images, lane.valid_rows);
  while (begin < end) {
    const int64_t image = begin / periods, first = begin % periods * factors.period;
    const int64_t stop = std::min(end, (image + 1) * periods);
    const int64_t n = std::min(elements - first, (stop - begin) * factors.period);
    const uint8_t* const x = op.x + image * elements + first;
    float* const y = op.y + image * elements + first;
    if (image < mixed) {
      const uint8_t* const other = op.x + (mixed - 1 - image) * elements + first;
      normalize_part<true>(factors, x, other, lane.mix, n, y);
    } else {
      normalize_part<false>(factors, x, nullptr, 1, n, y);
    }
    begin = stop;
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

size_t workspace_bytes(const graph::ImageNormalize<float>& op) {
  return static_cast<size_t>(2 * kPeriodPixels * op.channels) * sizeof(float);
}

void run(const graph::ImageNormalize<float>& op) {
  const int64_t period = kPeriodPixels * op.channels;
  float* const scale = op.workspace;  // (period) each
  float* const offset = scale + period;
  for (int64_t i = 0; i < period; ++i) {
    scale[i] = op.scale(i % op.channels);
    offset[i] = op.offset(i % op.channels);
  }
  const int64_t periods = (op.pixels + kPeriodPixels - 1) / kPeriodPixels;  // per image
  in_parallel(op.images * periods,
              grain_rows(period),
              HWY_DYNAMIC_DISPATCH(image_normalize_kernel),
              op,
              op.call.lane(),
              scale,
              offset);
}

constexpr exec::Implementation kRows[] = {
    row<run, workspace_bytes>(graph::OpKind::kImageNormalize, "simd")};

}  // namespace

constinit const exec::Implementations kCpuImageNormalize = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
