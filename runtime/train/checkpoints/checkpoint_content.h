#pragma once
// What this rank writes into a checkpoint: its part of the state of the optimizer and of
// compression and, on rank 0, the weights.

#include <optional>
#include <span>
#include <vector>

#include "runtime/checkpoint/writer.h"
#include "runtime/train/checkpoints/error_feedback_store.h"
#include "runtime/train/checkpoints/weights.h"
#include "runtime/train/run_context.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep {

class CheckpointContent {
 public:
  // All borrowed.
  CheckpointContent(const RunContext& context,
                    const RunMemory& memory,
                    const Optimizer& optimizer,
                    const ErrorFeedbackStore& residuals);

  // Collects the current state. Collective: all ranks call it together, because sharded weights are
  // gathered. With `snapshot`, the state is in the run's snapshot memory once copy() is done, and
  // training may continue then. Otherwise it is complete now, and valid until training continues.
  void collect(bool snapshot);
  // Makes the copies that collect() has left to do. Callable from any thread.
  void copy();
  // Frees memory that was allocated in addition to the snapshot.
  void release();

  // Flat; null except on rank 0.
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

  const RunContext& context_;
  const RunMemory& memory_;
  const Optimizer& optimizer_;
  const ErrorFeedbackStore& residuals_;
  const bool separate_;  // the host cannot reach the device's memory
  const float* weights_ = nullptr;
  std::vector<MomentShard> shards_;
  std::vector<Piece> pieces_;  // still to be copied
  // Host copies, used without a snapshot if the host cannot reach the device's memory.
  std::vector<float> weights_copy_;
  std::vector<std::byte> moments_copy_;
  std::optional<HostWeights> gathered_;
  ErrorFeedbackStore::Copy residuals_copy_;
};

}  // namespace lockstep
