#pragma once
// What this rank writes into a checkpoint: its part of what the optimizer and compression keep and,
// on rank 0, the weights.

#include <optional>
#include <span>
#include <vector>

#include "runtime/checkpoint/writer.h"
#include "runtime/train/checkpoints/error_feedback_store.h"
#include "runtime/train/checkpoints/weights.h"
#include "runtime/train/run_parts.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep {

class CheckpointContent {
 public:
  // All borrowed.
  CheckpointContent(const RunParts& parts,
                    const RunMemory& memory,
                    const Optimizer& optimizer,
                    const ErrorFeedbackStore& residuals);

  // Finds it as it is now. All ranks together: weights that are sharded are gathered. With
  // `snapshot` it lies in the snapshot of the run's memory once copy() is done, and training may go
  // on then; otherwise it is whole now, and only until training goes on.
  void collect(bool snapshot);
  // Copies what collect() has left to copy. From any thread.
  void copy();
  // Memory that was taken for it beside the snapshot is given back.
  void release();

  // Flat; null on other ranks than 0.
  const float* weights() const { return weights_; }
  const std::vector<MomentShard>& shards() const { return shards_; }

 private:
  struct Piece {
    const std::byte* from;
    std::byte* to;
    size_t bytes;
  };
  const float* collect_weights(std::span<float> to);
  void collect_moments(std::span<std::byte> to);
  const std::byte* piece(const std::byte* from, std::span<std::byte>& to, size_t bytes);

  const RunParts& parts_;
  const RunMemory& memory_;
  const Optimizer& optimizer_;
  const ErrorFeedbackStore& residuals_;
  const bool separate_;  // the device's memory is not the host's
  const float* weights_ = nullptr;
  std::vector<MomentShard> shards_;
  std::vector<Piece> pieces_;  // still to be copied
  // Of a device, where there is no snapshot.
  std::vector<float> weights_copy_;
  std::vector<std::byte> moments_copy_;
  std::optional<HostWeights> gathered_;
  ErrorFeedbackStore::Copy residuals_copy_;
};

}  // namespace lockstep
