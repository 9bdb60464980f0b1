#include "runtime/graph/ops/padded_identity.h"

#include "runtime/base/check.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/implementations.h"
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
  LOCKSTEP_REQUIRE(s.images * s.height * s.width < kMaxPixels);
  return {static_cast<int>(s.height),
          static_cast<int>(s.width),
          static_cast<int>(s.out_height),
          static_cast<int>(s.out_width),
          static_cast<int>(s.stride),
          s.channels,
          s.out_channels,
          s.before};
}

// No vector spans a boundary of x's channels.
template <typename T>
bool can_vectorize(const PaddedIdentityShape& s, const T* in, const T* out) {
  return is_vectorizable<T>(s.channels, {in, out}) && s.before % kVectorWidth<T> == 0 &&
         s.out_channels % kVectorWidth<T> == 0;
}

void run_forward(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    const auto [s, x, y] = PaddedIdentityForward<T>::of(call);
    for_each_pixel<kVectorWidth<T>>(s.images * s.out_height * s.out_width,
                                    s.out_channels,
                                    can_vectorize<T>(s, x, y),
                                    Forward<T>{extents_of(s), x, y},
                                    stream_of(call));
  });
}

void run_backward(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    const auto [s, d_y, d_x] = PaddedIdentityBackward<T>::of(call);
    for_each_pixel<kVectorWidth<T>>(s.images * s.height * s.width,
                                    s.channels,
                                    can_vectorize<T>(s, d_y, d_x),
                                    Backward<T>{extents_of(s), d_y, d_x},
                                    stream_of(call));
  });
}

constexpr Implementation kRows[] = {
    {.kind = OpKind::kPaddedIdentity,
     .name = "native",
     .run = run_forward,
     .supports = supports_pixels},
    {.kind = OpKind::kPaddedIdentityBackward,
     .name = "native",
     .run = run_backward,
     .supports = supports_pixels},
};

}  // namespace

constinit const Implementations kCudaPaddedIdentity = kRows;

}  // namespace lockstep::cuda
