#pragma once
// encode_moments() (base/moment_block.h) by a table instead of a search, with the same codes.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>

#include "runtime/base/moment_block.h"

namespace lockstep::cpu {

// By the upper 16 bits of a float: the code of the smallest number that has them. These numbers lie
// on both sides of at most one middle of the map, so one comparison completes the code.
class MomentCodes {
 public:
  explicit MomentCodes(const MomentMap& map) : map_(map) {
    for (uint32_t half = 0; half < first_.size(); ++half) {
      const uint32_t bits = half << 16 | (half >= 0x8000u ? 0xffffu : 0u);
      int code = 0;
      while (code < 255 && std::bit_cast<float>(bits) > map.middles[code]) ++code;
      first_[half] = static_cast<uint8_t>(code);
    }
  }

  void encode(const float* from, MomentBlock& block) const {
    float scale = 0;
    for (int i = 0; i < kMomentBlock; ++i) scale = std::max(scale, std::fabs(from[i]));
    float scaled[kMomentBlock];
    for (int i = 0; i < kMomentBlock; ++i) scaled[i] = scaled_moment(from[i], scale);
    for (int i = 0; i < kMomentBlock; ++i) {
      const float x = scaled[i];
      int code = first_[std::bit_cast<uint32_t>(x) >> 16];
      code += x > map_.middles[code] ? 1 : 0;
      code -= x < 0 && code == map_.zero ? 1 : 0;
      block.codes[i] = static_cast<uint8_t>(code);
    }
    block.scale = scale;
  }

  // The codes of moments that are never negative, or of others.
  static const MomentCodes& of(bool squares) {
    static const auto with_signs = std::make_unique<const MomentCodes>(kSignedMoments),
                      of_squares = std::make_unique<const MomentCodes>(kUnsignedMoments);
    return squares ? *of_squares : *with_signs;
  }

 private:
  const MomentMap& map_;
  std::array<uint8_t, 65536> first_;
};

}  // namespace lockstep::cpu
