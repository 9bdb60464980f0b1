#include <algorithm>

#include "runtime/cuda/cudnn/cudnn_conv2d.h"

namespace lockstep::cuda {
namespace {

// In a copy for tensor cores, the channels of each group fill up eights.
int64_t padded(int64_t channels, int64_t groups) {
  constexpr int64_t kUnit = 8;
  return (channels / groups + kUnit - 1) / kUnit * kUnit * groups;
}

}  // namespace

// From what cuDNN 9.19 and 9.26 ask for (tests/gpu/cudnn.md). Engines split the sums of the
// gradient of the weights, and add up copies of it: 16, or more if they are small. Channels that
// are no multiple of eight are padded, in a copy, and so are groups that have more outputs than
// channels, or fewer. Engines for floats transpose images, in a copy of x and one of y. The
// gradient of x may transpose the weights. Everything else fits into the slack: the tiles of other
// split sums, which are larger for floats, and more copies of small gradients.
size_t cudnn_conv2d_workspace_bytes(const CudnnConv2dKey& key) {
  constexpr size_t kSlack = size_t{16} << 20, kFloatSlack = 2 * kSlack;
  constexpr size_t kMaxCopies = size_t{64} << 20, kCopies = 16, kCopiesOfPadded = 64;
  const graph::Conv2dShape& s = key.shape;
  const bool floats = key.dtype == DType::kF32;
  const int64_t groups = s.channels == s.outputs ? 1 : s.groups;  // that are padded
  const auto copy = [&](int64_t pixels, int64_t channels) {
    if (!floats && groups == 1 && channels % 8 == 0) return size_t{0};
    return static_cast<size_t>(pixels * padded(channels, groups)) * size_of(key.dtype);
  };
  const auto weights = static_cast<size_t>(s.outputs * s.patch());
  size_t bytes = floats ? kFloatSlack : kSlack;
  if (key.pass == Conv2dPass::kBackwardInput) bytes += weights * size_of(key.dtype);
  if (key.pass == Conv2dPass::kBackwardWeight) {
    const size_t copies = groups == 1 ? kCopies : kCopiesOfPadded;
    bytes += std::min(kMaxCopies, copies * weights * sizeof(float));
  }
  return bytes + copy(s.pixels(), s.channels) + copy(s.out_pixels(), s.outputs);
}

}  // namespace lockstep::cuda
