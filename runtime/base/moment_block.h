#pragma once
// Moments of one byte (Dettmers et al., "8-bit optimizers via block-wise quantization", 2022), as
// bitsandbytes defines them: each block of 256 has a scale, its largest magnitude, and each number
// is the nearest value of a map from -1 to 1, times the scale.
//
// The map is dynamic: it has seven decades, from 1e-7 to 1, and each has twice the values of the
// one below it. Values are in the middle of equal parts of [0.1, 1] times the decade; 0 and 1 are
// added. The signed map has the negative values too, except -1. Averages of squares, which are
// never negative, have the unsigned map, with twice the values of each decade.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/base/dtype.h"
#include "runtime/base/host_device.h"

namespace lockstep {

inline constexpr int kMomentBlock = 256;  // elements

// As memory and files hold it. For a scale of 0 all values are 0.
struct MomentBlock {
  uint8_t codes[kMomentBlock];  // indices of the map's values
  float scale;
};
static_assert(sizeof(MomentBlock) == 260 && alignof(MomentBlock) == 4);

struct MomentMap {
  float values[256];  // increasing
  // The middle between each value and the next; the last is larger than any number.
  float middles[256];
  uint8_t zero;  // the code of 0
};

constexpr MomentMap make_moment_map(bool is_signed) {
  constexpr int kDecades = 7;
  constexpr float kTens[kDecades] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
  MomentMap map = {};
  size_t count = 0;
  for (int decade = 0; decade < kDecades; ++decade) {
    const int parts = (is_signed ? 1 : 2) << decade;
    // torch.linspace(0.1, 1, parts + 1): counted from the nearer end, rounded once.
    const double part = (1.0f - 0.1f) / static_cast<float>(parts);
    const auto bound = [&](int i) {
      return static_cast<float>(i < (parts + 1) / 2 ? 0.1f + part * i : 1 - part * (parts - i));
    };
    for (int i = 0; i < parts; ++i) {
      const float value = kTens[decade] * ((bound(i) + bound(i + 1)) / 2);
      map.values[count++] = value;
      if (is_signed) map.values[count++] = -value;
    }
  }
  map.values[count++] = 0;
  map.values[count++] = 1;
  std::sort(map.values, map.values + 256);
  for (size_t i = 0; i + 1 < 256; ++i) {
    map.middles[i] = (map.values[i] + map.values[i + 1]) / 2;
    if (map.values[i] == 0) map.zero = static_cast<uint8_t>(i);
  }
  map.middles[255] = 2;
  return map;
}

inline constexpr MomentMap kSignedMoments = make_moment_map(true);
inline constexpr MomentMap kUnsignedMoments = make_moment_map(false);

// The code of x, in [-1, 1]: that of the nearest value. As in bitsandbytes, a negative number does
// not become 0.
LOCKSTEP_HD uint8_t moment_code(const MomentMap& map, float x) {
  int code = 0;
  for (int step = 128; step > 0; step /= 2) code += x > map.middles[code + step - 1] ? step : 0;
  return static_cast<uint8_t>(code - (x < 0 && code == map.zero ? 1 : 0));
}

// The scaled number that moment_code() takes; `scale` is at least |x|.
LOCKSTEP_HD float scaled_moment(float x, float scale) { return scale > 0 ? x / scale : 0.0f; }

LOCKSTEP_HD float moment_value(const MomentMap& map, uint32_t code, float scale) {
  return scale > 0 ? map.values[code] * scale : 0.0f;
}

inline void decode_moments(const MomentMap& map, const MomentBlock& block, float* to) {
  for (int i = 0; i < kMomentBlock; ++i) to[i] = moment_value(map, block.codes[i], block.scale);
}

inline void encode_moments(const MomentMap& map, const float* from, MomentBlock& block) {
  float scale = 0;
  for (int i = 0; i < kMomentBlock; ++i) scale = std::max(scale, std::fabs(from[i]));
  for (int i = 0; i < kMomentBlock; ++i)
    block.codes[i] = moment_code(map, scaled_moment(from[i], scale));
  block.scale = scale;
}

// Whether a moment of this name, PyTorch's, is never negative.
constexpr bool is_moment_of_squares(std::string_view name) {
  return name == "exp_avg_sq" || name == "max_exp_avg_sq" || name == "square_avg" ||
         name == "sum" || name == "variance";
}

constexpr const MomentMap& moment_map(bool of_squares) {
  return of_squares ? kUnsignedMoments : kSignedMoments;
}

// The bytes of n elements of a moment; for kU8, which means blocks, a multiple of 256 elements.
constexpr size_t moment_bytes(DType dtype, int64_t n) {
  if (dtype != DType::kU8) return static_cast<size_t>(n) * size_of(dtype);
  return static_cast<size_t>(n / kMomentBlock) * sizeof(MomentBlock);
}

// The same for a whole array, whose end is aligned.
constexpr size_t moment_array_bytes(DType dtype, int64_t n) {
  constexpr size_t kAlignment = 64;
  const size_t bytes = moment_bytes(dtype, n);
  return dtype == DType::kU8 ? (bytes + kAlignment - 1) / kAlignment * kAlignment : bytes;
}

}  // namespace lockstep
