// What is known about cuDNN's attention without the library. The workspaces are those that cuDNN
// 9.19 and 9.26 ask for: tests/gpu/cudnn.md.
#include <fmt/core.h>

#include <algorithm>

#include "runtime/cuda/cudnn/cudnn_attention.h"

namespace lockstep::cuda {
namespace {

size_t up(int64_t n, int64_t unit) { return static_cast<size_t>((n + unit - 1) / unit * unit); }

// The 16-bit gradient of the scores, in full tiles: the cost of a fixed order of the sums, on all
// GPUs but data-center Blackwell. Hopper's tiles are the largest.
size_t score_bytes(const graph::AttentionShape& shape, int64_t batch) {
  return 2 * static_cast<size_t>(batch * shape.heads) * up(shape.time, 64) * up(shape.time, 128);
}

// Separate gradients of k and v for each head, if several heads share them: in 16 bits where the
// gradient of the scores is stored, and in floats on data-center Blackwell.
size_t shared_key_bytes(const graph::AttentionShape& shape, size_t element_bytes) {
  if (shape.group() == 1) return 0;
  return 2 * element_bytes * static_cast<size_t>(shape.batch * shape.time * shape.width());
}

// The compute capabilities 10.0 and 10.3: data-center Blackwell.
constexpr int kBlackwell = 10;

// "9.5.1" for 90501.
std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

int64_t cudnn_backward_batch(const graph::AttentionShape& shape) {
  constexpr size_t kMax = size_t{1} << 30;
  int64_t batch = shape.batch;
  while (batch > 1 && (shape.batch % batch != 0 || score_bytes(shape, batch) > kMax)) --batch;
  return batch;
}

std::string cudnn_head_limit(const graph::AttentionShape& shape) {
  constexpr int64_t kUnit = 8;
  if (shape.head_size % kUnit == 0) return "";
  return fmt::format("the head size {} is not a multiple of {}", shape.head_size, kUnit);
}

std::string cudnn_backward_limit(const graph::AttentionShape& shape, int sm, int version) {
  constexpr int64_t kMaxHeadSize = 128, kBlackwellHeadSize = 256;
  constexpr int kHopper = 9, kFirstOnBlackwell = 91800, kFirstOfLargeHeadsOnBlackwell = 92300;
  const int major = sm / 10;
  const std::string gpu = fmt::format("GPUs of compute capability {}.{}", major, sm % 10);
  if (major == kBlackwell && version < kFirstOnBlackwell)
    return fmt::format(
        "{}cuDNN {} has no backward pass of attention with a fixed order of sums for {}; install "
        "cuDNN {} or newer",
        kKnownLimit,
        version_text(version),
        gpu,
        version_text(kFirstOnBlackwell));
  const bool large = shape.head_size > kMaxHeadSize && major != kHopper &&
                     !(major == kBlackwell && shape.head_size == kBlackwellHeadSize &&
                       version >= kFirstOfLargeHeadsOnBlackwell);
  if (!large) return "";
  return fmt::format("{}cuDNN {} has no backward pass of attention with heads of {} for {}",
                     kKnownLimit,
                     version_text(version),
                     shape.head_size,
                     gpu);
}

bool fits_cudnn_workspace(const graph::AttentionShape& shape,
                          bool padded,
                          int version,
                          std::string& why_not) {
  // The frontend puts 4-byte words first in the workspace, then the engine's part, which must be
  // aligned. The words are a float for each token of each head and, with cuDNN before 9.16, two
  // lengths per sample if the tokens do not fill tiles and the caller gives no lengths.
  constexpr int64_t kAlignedWords = 4, kTile = 128;
  constexpr int kLastWithLengths = 91500;
  const int64_t batch = cudnn_backward_batch(shape);
  const bool has_lengths = !padded && version <= kLastWithLengths && shape.time % kTile != 0;
  const int64_t words = batch * shape.heads * shape.time + (has_lengths ? 2 * batch : 0);
  if (words % kAlignedWords == 0) return true;
  why_not = fmt::format(
      "{}cuDNN {} would not align its workspace for {} samples of {} heads and {} tokens",
      kKnownLimit,
      version_text(version),
      batch,
      shape.heads,
      shape.time);
  return false;
}

// Both passes ask for some hundred bytes beside this, with cuDNN before 9.16 also for two lengths
// per sample.
size_t cudnn_attention_workspace_bytes(const CudnnAttentionKey& key) {
  constexpr size_t kSlack = size_t{1} << 20;
  if (!key.backward) return kSlack;
  const graph::AttentionShape& s = key.shape;
  const size_t sums = static_cast<size_t>(s.batch * s.heads * s.time) * sizeof(float);
  return sums + kSlack +
         std::max(score_bytes(s, s.batch) + shared_key_bytes(s, size_of(key.dtype)),
                  shared_key_bytes(s, sizeof(float)));
}

}  // namespace lockstep::cuda
