#include "runtime/data/images/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "runtime/base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/data/images/resample.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// The filter is separable. Along each axis it is a triangle that ends max(1, scale) input pixels,
// the `support`, to each side of the output pixel's centre. If the image shrinks (scale > 1), the
// triangle widens with it, so that every input pixel has influence; this is the antialiasing. If
// the image grows, it is plain bilinear interpolation.
//
//               centre            The centre of output pixel j is at begin + (j + 0.5) * scale.
//                  /\             Its taps are the input pixels whose centres are inside the
//               /      \          triangle. Their weights are the triangle's heights at these
//            /            \       centres, divided by the sum of all weights.
//   |-----|--/--|-----|----\|-----|   input pixels
//            |<----->|
//             support
//
// AxisWeights::set() computes taps and weights once for each image and axis, in double. Then each
// output row takes two passes in float:
// 1. weigh_rows() adds `taps` input rows with their weights. The bytes of a row are contiguous
//    whatever the channels, so this uses full vectors. It computes only columns [begin, end).
// 2. weigh_columns() adds `taps` pixels of that row with their weights, four channels at a time.
// The vertical pass comes first because it is the fast one: the slower horizontal pass then has
// only as many rows as the output.

HWY_BEFORE_NAMESPACE();
namespace lockstep::data {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;

template <typename Tag>
HWY_INLINE hn::Vec<Tag> load_bytes(Tag tag, const uint8_t* bytes) {
  const hn::Rebind<uint8_t, Tag> narrow;
  const hn::Rebind<int32_t, Tag> wide;
  return hn::ConvertTo(tag, hn::PromoteTo(wide, hn::LoadU(narrow, bytes)));
}

// line[i] = sum over taps of weights[tap] * input[tap * stride + i], i < count.
void weigh_rows(const uint8_t* input,
                int64_t stride,
                const float* weights,
                int taps,
                int64_t count,
                float* line) {
  const Floats tag;
  const auto lanes = static_cast<int64_t>(hn::Lanes(tag));
  const auto block = [&](auto d, int64_t i) HWY_ATTR {
    auto sum = hn::Mul(hn::Set(d, weights[0]), load_bytes(d, input + i));
    for (int tap = 1; tap < taps; ++tap)
      sum = hn::MulAdd(hn::Set(d, weights[tap]), load_bytes(d, input + tap * stride + i), sum);
    hn::StoreU(sum, d, line + i);
  };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) block(tag, i);
  if (i == count) return;
  if (count >= lanes) return block(tag, count - lanes);
  const hn::CappedTag<float, 1> one;
  for (; i < count; ++i) block(one, i);
}

// Four channels. This is not a Highway type, because its scalar target has no vectors of four.
using Four = float __attribute__((vector_size(16)));

HWY_INLINE Four load_four(const float* from) {
  Four vector;
  std::memcpy(&vector, from, sizeof(vector));
  return vector;
}

// kTaps 0: axis.taps, which is not known at compile time.
template <int kTaps>
void weigh_columns_of(
    const float* line, const AxisWeights& axis, int channels, bool flip, float* row) {
  const int taps = kTaps > 0 ? kTaps : axis.taps;
  const auto outputs = static_cast<int64_t>(axis.first.size());
  for (int64_t i = 0; i < outputs; ++i, row += channels) {
    const auto j = static_cast<size_t>(flip ? outputs - 1 - i : i);
    const float* weights = &axis.weights[j * static_cast<size_t>(taps)];
    const float* from = line + int64_t{axis.first[j] - axis.begin} * channels;
    for (int c = 0; c < channels; c += 4) {
      Four sum = weights[0] * load_four(from + c);
      for (int tap = 1; tap < taps; ++tap)
        sum += weights[tap] * load_four(from + tap * channels + c);
      std::memcpy(row + c, &sum, sizeof(sum));
    }
  }
}

// One output row in floats: row[j * channels + c] = sum over taps of weights[j][tap] *
// line[(first[j] + tap - begin) * channels + c], from right to left if `flip` is set. Reads and
// writes up to 3 elements past the ends. The most frequent numbers of taps are unrolled.
void weigh_columns(
    const float* line, const AxisWeights& axis, int channels, bool flip, float* row) {
  switch (axis.taps) {
    case 2: return weigh_columns_of<2>(line, axis, channels, flip, row);
    case 3: return weigh_columns_of<3>(line, axis, channels, flip, row);
    case 4: return weigh_columns_of<4>(line, axis, channels, flip, row);
    default: return weigh_columns_of<0>(line, axis, channels, flip, row);
  }
}

// Rounds to bytes. Weights are not negative and sum to 1, so the values need no clamping.
void to_bytes(const float* values, int64_t count, uint8_t* bytes) {
  for (int64_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(values[i] + 0.5f);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::data
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::data {

HWY_EXPORT(weigh_rows);
HWY_EXPORT(weigh_columns);
HWY_EXPORT(to_bytes);

ResampleAxis shrink(const ResampleAxis& axis, int denominator, int extent) {
  ResampleAxis shrunk = axis;
  shrunk.begin = axis.begin / denominator;
  shrunk.scale = axis.scale / denominator;
  shrunk.low = axis.low / denominator;
  shrunk.high = std::min(extent, (axis.high + denominator - 1) / denominator);
  return shrunk;
}

void AxisWeights::set(const ResampleAxis& axis) {
  const double support = std::max(1.0, axis.scale);
  const auto outputs = static_cast<size_t>(axis.outputs);
  LOCKSTEP_CHECK(axis.low < axis.high && axis.outputs >= 1, "{} to {}", axis.low, axis.high);
  const auto centre_of = [&axis](size_t output) {
    return axis.begin + (static_cast<double>(output) + 0.5) * axis.scale;
  };
  // The pixels with a positive weight: their centres are less than `support` away.
  const auto range_of = [&](double centre) {
    const int from = static_cast<int>(std::floor(centre - support - 0.5)) + 1;
    const int to = static_cast<int>(std::ceil(centre + support - 0.5));
    return std::pair(std::max(axis.low, from), std::min(axis.high, to));
  };
  taps = 0;
  for (size_t j = 0; j < outputs; ++j) {
    const auto [from, to] = range_of(centre_of(j));
    LOCKSTEP_CHECK(from < to, "output {} lies outside the input", j);
    taps = std::max(taps, to - from);
  }
  first.resize(outputs);
  weights.assign(outputs * static_cast<size_t>(taps), 0.0f);
  begin = axis.high;
  end = axis.low;
  for (size_t j = 0; j < outputs; ++j) {
    const double centre = centre_of(j);
    const auto [from, to] = range_of(centre);
    const auto weight = [&](int i) { return 1 - std::abs(i + 0.5 - centre) / support; };
    double sum = 0;
    for (int i = from; i < to; ++i) sum += weight(i);
    first[j] = std::min(from, axis.high - taps);  // keeps all taps inside the input
    for (int i = from; i < to; ++i)
      weights[j * static_cast<size_t>(taps) + static_cast<size_t>(i - first[j])] =
          static_cast<float>(weight(i) / sum);
    begin = std::min(begin, first[j]);
    end = std::max(end, first[j] + taps);
  }
}

ImageRegion Resampler::set(const ResampleAxis& vertical, const ResampleAxis& horizontal) {
  rows_.set(vertical);
  columns_.set(horizontal);
  return {rows_.begin, rows_.end, columns_.begin, columns_.end};
}

void Resampler::run(const PixelView& input, bool flip, uint8_t* out) {
  constexpr size_t kPast = 4;
  const int channels = input.channels;
  const int64_t count = int64_t{columns_.end - columns_.begin} * channels;
  const auto row_bytes = static_cast<int64_t>(columns_.first.size()) * channels;
  line_.resize(static_cast<size_t>(count) + kPast);
  row_.resize(static_cast<size_t>(row_bytes) + kPast);
  for (size_t y = 0; y < rows_.first.size(); ++y, out += row_bytes) {
    const uint8_t* from =
        input.origin + rows_.first[y] * input.stride + int64_t{columns_.begin} * channels;
    const float* weights = &rows_.weights[y * static_cast<size_t>(rows_.taps)];
    HWY_DYNAMIC_DISPATCH(weigh_rows)
    (from, input.stride, weights, rows_.taps, count, line_.data());
    HWY_DYNAMIC_DISPATCH(weigh_columns)(line_.data(), columns_, channels, flip, row_.data());
    HWY_DYNAMIC_DISPATCH(to_bytes)(row_.data(), row_bytes, out);
  }
}

}  // namespace lockstep::data
#endif  // HWY_ONCE
