#pragma once
// What rounding has taken from the sums of gradients, as a checkpoint holds it: an array of the
// flat buffer for each sum of lanes that is rounded, whoever has which part of it.

#include <filesystem>
#include <string>
#include <vector>

#include "collectives/residual_layout.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/checkpoint/writer.h"
#include "runtime/train/run_parts.h"

namespace lockstep {

class ResidualStore {
 public:
  // Of a run with error feedback, else of nothing. Both borrowed.
  ResidualStore(const RunParts& parts, const RunMemory& memory);

  // The arrays' names, the same on every rank.
  std::vector<std::string> names() const;

  // A rank's part of every array, as floats on the host.
  struct Copy {
    std::vector<float> values;
    std::vector<MomentShard> shards;  // of `values`
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
  void each_part(const ResidualLayout::Kept& kept, Body body) const;

  const RunParts& parts_;
  std::byte* residuals_;  // of the device
  int groups_;
  ResidualLayout layout_;
};

}  // namespace lockstep
