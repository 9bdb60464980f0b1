#include "runtime/train/checkpoints/checkpoint_content.h"

#include <algorithm>

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
  collect_moments(snapshot ? memory_.moments_snapshot : std::span<float>());
  if (!separate_) return;
  for (const Piece& piece : pieces_)
    parts_.backend.copy(reinterpret_cast<const std::byte*>(piece.from),
                        reinterpret_cast<std::byte*>(piece.to),
                        static_cast<size_t>(piece.elements) * sizeof(float));
  parts_.backend.synchronize();
  pieces_.clear();
}

void CheckpointContent::copy() {
  for (const Piece& piece : pieces_) std::copy_n(piece.from, piece.elements, piece.to);
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

// Where elements that begin at `from` are to lie: at the beginning of `to`, which is used up, or,
// where that is empty, where they are.
const float* CheckpointContent::piece(const float* from, std::span<float>& to, int64_t elements) {
  if (to.empty()) return from;
  float* const place = to.data();
  pieces_.push_back({from, place, elements});
  to = to.subspan(static_cast<size_t>(elements));
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
  return piece(reinterpret_cast<const float*>(memory_.parameters), to, plan.layout.elements);
}

void CheckpointContent::collect_moments(std::span<float> to) {
  const std::vector<std::string> kept = kept_arrays(parts_.config);
  const std::vector<Range> owned = parts_.owned();
  if (to.empty() && separate_) {
    moments_copy_.resize(kept.size() * static_cast<size_t>(parts_.plan.layout.trained() /
                                                           parts_.communicator.size()));
    to = moments_copy_;
  }
  for (size_t m = 0; m < kept.size(); ++m) {
    MomentShard& shard = shards_.emplace_back(MomentShard{kept[m], {}});
    for (size_t bucket = 0; bucket < owned.size(); ++bucket) {
      const Range& range = owned[bucket];
      const int64_t place = parts_.plan.place_of(parts_.communicator.rank(), bucket, range.begin);
      const float* const from = memory_.moments + optimizer_.moment_offset(m) + place;
      shard.slices.push_back(
          {range.begin, {piece(from, to, range.size()), static_cast<size_t>(range.size())}});
    }
  }
}

}  // namespace lockstep
