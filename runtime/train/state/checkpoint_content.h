#pragma once
// What this rank writes into a checkpoint: its part of the state of the optimizer and of
// compression and, on rank 0, the weights; and what the checkpoint says of the run.

#include <optional>
#include <span>
#include <vector>

#include "runtime/checkpoint/run/saved_run.h"
#include "runtime/train/progression.h"
#include "runtime/train/run_context.h"
#include "runtime/train/state/error_feedback_store.h"
#include "runtime/train/state/weights.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep::train {

class CheckpointContent final : public checkpoint::CheckpointSource {
 public:
  // All borrowed.
  CheckpointContent(const RunContext& context, const RunMemory& memory, const Optimizer& optimizer);

  // The state of the run for a checkpoint, without its files.
  checkpoint::CheckpointState state(const Progression& progression, uint64_t weights_hash) const;
  // Bytes of all files of a checkpoint.
  int64_t bytes() const;
  const Optimizer& optimizer() const { return optimizer_; }
  const ErrorFeedbackStore& residuals() const { return residuals_; }

  bool has_snapshot() const override { return context_.plan.memory.has_snapshot(); }
  void collect(bool snapshot) override;  // gathers sharded weights
  void copy() override;
  void release() override;
  const float* weights() const override { return weights_; }
  const std::vector<checkpoint::MomentShard>& shards() const override { return shards_; }

 private:
  struct Piece {
    const std::byte* from;
    std::byte* to;
    size_t bytes;
  };
  void add_averages(const plan::AdafactorLayout& averages,
                    checkpoint::CheckpointState& state) const;
  const float* collect_weights(std::span<float> to);
  void collect_moments(std::span<std::byte> to);
  const std::byte* piece(const std::byte* from, std::span<std::byte>& to, size_t bytes);

  const RunContext& context_;
  const RunMemory& memory_;
  const Optimizer& optimizer_;
  ErrorFeedbackStore residuals_;
  const bool separate_;  // the host cannot reach the device's memory
  const float* weights_ = nullptr;
  std::vector<checkpoint::MomentShard> shards_;
  std::vector<Piece> pieces_;  // still to be copied
  // Host copies, used without a snapshot if the host cannot reach the device's memory.
  std::vector<float> weights_copy_;
  std::vector<std::byte> moments_copy_;
  std::optional<HostWeights> gathered_;
  ErrorFeedbackStore::Copy residuals_copy_;
};

}  // namespace lockstep::train
