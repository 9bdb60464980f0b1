#include "runtime/train/checkpoints/checkpoint_content.h"

#include <algorithm>
#include <cstring>

#include "runtime/train/step/weight_average.h"

namespace lockstep {

CheckpointContent::CheckpointContent(const RunParts& parts,
                                     const RunMemory& memory,
                                     const Optimizer& optimizer,
                                     const ErrorFeedbackStore& residuals)
    : parts_(parts),
      memory_(memory),
      optimizer_(optimizer),
      residuals_(residuals),
      separate_(parts.backend.ops().separate_memory) {}

void CheckpointContent::collect(bool snapshot) {
  release();
  weights_ = collect_weights(snapshot ? memory_.weights_snapshot : std::span<float>());
  residuals_copy_ = residuals_.read();
  shards_ = residuals_copy_.shards;
  collect_moments(snapshot ? memory_.moments_snapshot : std::span<std::byte>());
  if (!separate_) return;
  for (const Piece& piece : pieces_) parts_.backend.copy(piece.from, piece.to, piece.bytes);
  parts_.backend.synchronize();
  pieces_.clear();
}

void CheckpointContent::copy() {
  for (const Piece& piece : pieces_) std::memcpy(piece.to, piece.from, piece.bytes);
  pieces_.clear();
}

void CheckpointContent::release() {
  weights_ = nullptr;
  shards_.clear();
  pieces_.clear();
  weights_copy_ = {};
  moments_copy_ = {};
  gathered_.reset();
  residuals_copy_ = {};
}

// Where bytes that begin at `from` are to lie: at the beginning of `to`, which is used up, or, where
// that is empty, where they are.
const std::byte* CheckpointContent::piece(const std::byte* from,
                                          std::span<std::byte>& to,
                                          size_t bytes) {
  if (to.empty()) return from;
  std::byte* const place = to.data();
  pieces_.push_back({from, place, bytes});
  to = to.subspan(bytes);
  return place;
}

const float* CheckpointContent::collect_weights(std::span<float> to) {
  const bool writes = parts_.communicator.rank() == 0;
  const Plan& plan = parts_.plan;
  if (plan.compute != DType::kF32 || plan.shards_parameters) {
    gathered_.emplace(parts_, memory_, to);
    const float* const whole = gathered_->read();
    return writes ? whole : nullptr;
  }
  if (!writes) return nullptr;
  if (to.empty() && separate_) {
    weights_copy_.resize(static_cast<size_t>(plan.layout.elements));
    to = weights_copy_;
  }
  std::span<std::byte> place = std::as_writable_bytes(to);
  return reinterpret_cast<const float*>(
      piece(memory_.parameters, place, static_cast<size_t>(plan.layout.elements) * sizeof(float)));
}

void CheckpointContent::collect_moments(std::span<std::byte> to) {
  const std::vector<std::string> kept = kept_arrays(parts_.config);
  const std::vector<Range> owned = parts_.owned();
  const auto dtype_of = [&](size_t array) {  // behind the moments lies the average
    return array < optimizer_.moments() ? optimizer_.moment_dtype() : DType::kF32;
  };
  // Calls f(range, where its values lie) for what this rank writes of an array.
  const auto each_part = [&](size_t array, auto f) {
    const std::byte* const begin = memory_.moments + optimizer_.moment_begin(array);
    for (const Range& range : owned) {
      for (const Optimizer::KeptRange& has : optimizer_.kept(array)) {
        const Range part = {std::max(range.begin, has.range.begin),
                            std::min(range.end, has.range.end)};
        if (part.begin >= part.end) continue;
        const int64_t place = has.local + part.begin - has.range.begin;
        f(part, begin + static_cast<size_t>(place) * size_of(dtype_of(array)));
      }
    }
  };
  if (to.empty() && separate_) {
    size_t bytes = 0;
    for (size_t m = 0; m < kept.size(); ++m)
      each_part(m, [&](const Range& part, const std::byte*) {
        bytes += static_cast<size_t>(part.size()) * size_of(dtype_of(m));
      });
    moments_copy_.resize(bytes);
    to = moments_copy_;
  }
  for (size_t m = 0; m < kept.size(); ++m) {
    MomentShard& shard = shards_.emplace_back(MomentShard{kept[m], {}});
    each_part(m, [&](const Range& part, const std::byte* from) {
      const auto elements = static_cast<size_t>(part.size());
      const std::byte* const values = piece(from, to, elements * size_of(dtype_of(m)));
      MomentSlice& slice = shard.slices.emplace_back(MomentSlice{part.begin, {}});
      if (dtype_of(m) == DType::kBF16) {
        slice.halves = {reinterpret_cast<const BFloat16*>(values), elements};
      } else {
        slice.values = {reinterpret_cast<const float*>(values), elements};
      }
    });
  }
}

}  // namespace lockstep
