#pragma once
// What compression of the gradients keeps from step to step, as a checkpoint holds it: arrays laid
// out like the flat buffer, whichever rank holds which part. There is one array of residuals for
// each sum of lanes that is rounded or factored and, with PowerSGD, one with the right factors,
// each stored at the offset of its matrix.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "collectives/layout/error_feedback_layout.h"
#include "runtime/base/half.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/checkpoint/format/writer.h"
#include "runtime/exec/host_copy.h"
#include "runtime/train/run_context.h"

namespace lockstep::train {

class ErrorFeedbackStore {
 public:
  // Empty unless the run compresses gradients. Both borrowed.
  ErrorFeedbackStore(const RunContext& context, const RunMemory& memory);

  // The arrays' names, the same on every rank.
  std::vector<std::string> names() const;

  // A rank's part of every array, as floats on the host.
  struct Copy {
    std::vector<float> values;                    // residuals
    std::vector<float> rights;                    // flat
    std::vector<checkpoint::MomentShard> shards;  // of both
  };
  // Waits for everything queued.
  Copy read() const;
  // Fills the rank's part of every array, with zeros if the checkpoint does not have the array.
  // Throws CheckpointError.
  void restore(const checkpoint::CheckpointState& state,
               const std::filesystem::path& folder,
               const std::vector<checkpoint::NamedSlice>& slices) const;

 private:
  // Calls body(index among the rank's residuals, range of the flat buffer) for each part.
  template <typename Body>
  void each_part(const collectives::ErrorFeedbackLayout::Kept& kept, Body body) const;
  int64_t residuals() const;  // number of residuals that the rank holds
  // The residuals: floats with PowerSGD, bfloat16 if sums are rounded.
  template <typename T>
  exec::HostCopyOf<T> residuals_as() const {
    return {context_.backend, reinterpret_cast<T*>(memory_.residuals), residuals()};
  }
  exec::HostCopy rights() const;
  std::vector<float> read_residuals() const;
  std::vector<float> flat_rights() const;
  void write_rights(const std::vector<float>& flat) const;
  std::string rights_name() const;
  void read_arrays(const checkpoint::CheckpointState& state,
                   const std::filesystem::path& folder,
                   const std::vector<checkpoint::NamedSlice>& slices,
                   std::span<float> residuals) const;

  const RunContext& context_;
  const RunMemory& memory_;
  int groups_;
  std::vector<collectives::ErrorFeedbackLayout::Kept> kept_;
};

}  // namespace lockstep::train
