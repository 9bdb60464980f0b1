#include <algorithm>

#include "runtime/cuda/cudnn/cudnn_conv2d.h"

namespace lockstep::cuda {

// The 16-bit engines need almost no workspace, except for the gradient of the weights: its sums are
// split, and several copies of it are added up. If the channels are not a multiple of eight, cuDNN
// pads a copy of the images and, for that gradient, a copy of d_y. Many float engines transpose
// either of them.
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
