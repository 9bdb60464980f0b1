// What is known about cuDNN's attention without the library.
#include <fmt/core.h>

#include "runtime/cuda/cudnn/cudnn_attention.h"

namespace lockstep::cuda {
namespace {

size_t up(int64_t n, int64_t unit) { return static_cast<size_t>((n + unit - 1) / unit * unit); }

// The 16-bit gradient of the scores, in full tiles: the cost of a fixed order of the sums.
size_t score_bytes(const AttentionShape& shape, int64_t batch) {
  return 2 * static_cast<size_t>(batch * shape.heads) * up(shape.time, 64) * up(shape.time, 128);
}

// Separate 16-bit gradients of k and v for each head, if several heads share them.
size_t shared_key_bytes(const AttentionShape& shape) {
  if (shape.group() == 1) return 0;
  return 2 * 2 * static_cast<size_t>(shape.batch * shape.time * shape.width());
}

}  // namespace

int64_t cudnn_backward_batch(const AttentionShape& shape) {
  constexpr size_t kMax = size_t{1} << 30;
  int64_t batch = shape.batch;
  while (batch > 1 && (shape.batch % batch != 0 || score_bytes(shape, batch) > kMax)) --batch;
  return batch;
}

std::string cudnn_head_limit(const AttentionShape& shape) {
  constexpr int64_t kUnit = 8;
  if (shape.head_size % kUnit == 0) return "";
  return fmt::format("the head size {} is not a multiple of {}", shape.head_size, kUnit);
}

bool fits_cudnn_workspace(const AttentionShape& shape, int version, std::string& why_not) {
  // The frontend puts 4-byte words first in the workspace, then the engine's part, which must be
  // aligned. The words are a float for each token of each head and, with cuDNN before 9.16, two
  // lengths per sample if the tokens do not fill tiles.
  constexpr int64_t kAlignedWords = 4, kTile = 128;
  constexpr int kLastWithLengths = 91500;
  const int64_t batch = cudnn_backward_batch(shape);
  const bool has_lengths = version <= kLastWithLengths && shape.time % kTile != 0;
  const int64_t words = batch * shape.heads * shape.time + (has_lengths ? 2 * batch : 0);
  if (words % kAlignedWords == 0) return true;
  why_not = fmt::format(
      "{}cuDNN {} would not align its workspace for {} samples of {} heads and {} tokens",
      kKnownLimit,
      version,
      batch,
      shape.heads,
      shape.time);
  return false;
}

size_t cudnn_attention_workspace_bytes(const CudnnAttentionKey& key) {
  constexpr size_t kSlack = size_t{1} << 20;
  if (!key.backward) return kSlack;
  const AttentionShape& s = key.shape;
  const size_t sums = static_cast<size_t>(s.batch * s.heads) * up(s.time, 128) * sizeof(float);
  return score_bytes(s, s.batch) + shared_key_bytes(s) + sums + kSlack;
}

}  // namespace lockstep::cuda
