#pragma once
// What compression of the gradients keeps from step to step, as a checkpoint holds it: arrays of
// the flat buffer, whoever has which part of them. One for what each sum of lanes has left out so
// far and, where gradients travel as factors, one with the right factors: each where its matrix
// begins.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "collectives/reduce/error_feedback_layout.h"
#include "runtime/base/half.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/checkpoint/writer.h"
#include "runtime/exec/host_copy.h"
#include "runtime/train/run_parts.h"

namespace lockstep {

class ErrorFeedbackStore {
 public:
  // Of a run that compresses gradients, else of nothing. Both borrowed.
  ErrorFeedbackStore(const RunParts& parts, const RunMemory& memory);

  // The arrays' names, the same on every rank.
  std::vector<std::string> names() const;

  // A rank's part of every array, as floats on the host.
  struct Copy {
    std::vector<float> values;        // residuals
    std::vector<float> rights;        // flat
    std::vector<MomentShard> shards;  // of both
  };
  // Once everything queued is done.
  Copy read() const;
  // Fills the rank's part of every array, with zeros where the checkpoint has none. Throws
  // CheckpointError.
  void restore(const CheckpointState& state,
               const std::filesystem::path& folder,
               const std::vector<NamedSlice>& slices) const;

 private:
  // Calls body(place among the rank's residuals, range of the flat buffer) for each part.
  template <typename Body>
  void each_part(const ErrorFeedbackLayout::Kept& kept, Body body) const;
  int64_t residuals() const;             // that the rank has
  HostCopy factored() const;             // as floats,
  HostCopyOf<BFloat16> rounded() const;  // and where sums are rounded
  HostCopy rights() const;
  std::vector<float> read_residuals() const;
  std::vector<float> flat_rights() const;
  void write_rights(const std::vector<float>& flat) const;
  std::string rights_name() const;
  void read_arrays(const CheckpointState& state,
                   const std::filesystem::path& folder,
                   const std::vector<NamedSlice>& slices,
                   std::span<float> residuals) const;

  const RunParts& parts_;
  const RunMemory& memory_;
  int groups_;
  std::vector<ErrorFeedbackLayout::Kept> kept_;
};

}  // namespace lockstep
