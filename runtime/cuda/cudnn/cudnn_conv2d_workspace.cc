#include <algorithm>

#include "runtime/cuda/cudnn/cudnn_conv2d.h"

namespace lockstep::cuda {

// The engines for 16 bits need next to nothing but for the gradient of weights, whose products they
// share out over copies of it. Channels that do not come in eights are padded in a copy of the
// images, for that gradient beside one of d_y; and many engines for floats turn either round.
size_t cudnn_conv2d_workspace_bytes(const CudnnConv2dKey& key) {
  constexpr size_t kSlack = size_t{32} << 20, kMaxCopies = size_t{128} << 20, kCopies = 16;
  const Conv2dShape& s = key.shape;
  const bool weight = key.pass == Conv2dPass::kBackwardWeight;
  const bool floats = key.dtype == DType::kF32, odd = s.channels % 8 != 0;
  size_t bytes = kSlack;
  if (weight)
    bytes +=
        std::min(kMaxCopies, kCopies * static_cast<size_t>(s.outputs * s.patch()) * sizeof(float));
  const int64_t padded = (s.channels + 7) / 8 * 8;
  if (odd || floats) bytes += static_cast<size_t>(s.pixels() * padded) * size_of(key.dtype);
  if ((odd && weight) || floats)
    bytes += static_cast<size_t>(s.out_pixels() * s.outputs) * size_of(key.dtype);
  return bytes;
}

}  // namespace lockstep::cuda
