#include "runtime/cuda/ops/padded_identity.h"

#include "runtime/base/check.h"
#include "runtime/cuda/pixel_kernel.h"

namespace lockstep::cuda {
namespace {

struct Extents {
  int height, width, out_height, out_width, stride;
  int64_t channels, out_channels, before;
};

template <typename T>
struct Forward {
  Extents e;
  const T* x;
  T* y;

  template <typename Count>
  __device__ void operator()(int64_t pixel, int64_t channel, Count) const {
    const Pixel at(pixel, e.out_height, e.out_width);
    const int64_t from = channel - e.before;
    float values[Count::value] = {};
    if (from >= 0 && from < e.channels) {
      const int64_t line = static_cast<int64_t>(at.image) * e.height + at.row * e.stride;
      load(x + (line * e.width + at.column * e.stride) * e.channels + from, values);
    }
    store(values, y + pixel * e.out_channels + channel);
  }
};

template <typename T>
struct Backward {
  Extents e;
  const T* d_y;
  T* d_x;

  template <typename Count>
  __device__ void operator()(int64_t pixel, int64_t channel, Count) const {
    const Pixel at(pixel, e.height, e.width);
    const int row = at.row / e.stride, column = at.column / e.stride;
    float values[Count::value] = {};
    if (row * e.stride == at.row && column * e.stride == at.column) {
      const int64_t line = static_cast<int64_t>(at.image) * e.out_height + row;
      load(d_y + (line * e.out_width + column) * e.out_channels + e.before + channel, values);
    }
    store(values, d_x + pixel * e.channels + channel);
  }
};

Extents extents_of(const PaddedIdentityShape& s) {
  LOCKSTEP_REQUIRE(s.images * s.height * s.width < kMostPixels);
  return {static_cast<int>(s.height),
          static_cast<int>(s.width),
          static_cast<int>(s.out_height()),
          static_cast<int>(s.out_width()),
          static_cast<int>(s.attributes.stride),
          s.channels,
          s.out_channels(),
          s.attributes.before};
}

// No vector lies across the borders of x's channels.
template <typename T>
bool can_vectorize(const PaddedIdentityShape& s, const T* in, const T* out) {
  return is_vectorizable<T>(s.channels, {in, out}) && s.attributes.before % kVectorWidth<T> == 0 &&
         s.out_channels() % kVectorWidth<T> == 0;
}

}  // namespace

template <typename T>
void padded_identity_forward(const PaddedIdentityShape& s, const T* x, T* y, Stream stream) {
  for_each_pixel<kVectorWidth<T>>(s.images * s.out_height() * s.out_width(),
                                  s.out_channels(),
                                  can_vectorize(s, x, static_cast<const T*>(y)),
                                  Forward<T>{extents_of(s), x, y},
                                  stream);
}

template <typename T>
void padded_identity_backward(const PaddedIdentityShape& s, const T* d_y, T* d_x, Stream stream) {
  for_each_pixel<kVectorWidth<T>>(s.images * s.height * s.width,
                                  s.channels,
                                  can_vectorize(s, d_y, static_cast<const T*>(d_x)),
                                  Backward<T>{extents_of(s), d_y, d_x},
                                  stream);
}

template void padded_identity_forward(const PaddedIdentityShape&, const float*, float*, Stream);
template void padded_identity_forward(const PaddedIdentityShape&,
                                      const BFloat16*,
                                      BFloat16*,
                                      Stream);
template void padded_identity_forward(const PaddedIdentityShape&, const Float16*, Float16*, Stream);
template void padded_identity_backward(const PaddedIdentityShape&, const float*, float*, Stream);
template void padded_identity_backward(const PaddedIdentityShape&,
                                       const BFloat16*,
                                       BFloat16*,
                                       Stream);
template void padded_identity_backward(const PaddedIdentityShape&,
                                       const Float16*,
                                       Float16*,
                                       Stream);

}  // namespace lockstep::cuda
