#pragma once
// The weights of a run as floats on the host: to begin, to save, to hash.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/exec/host_copy.h"
#include "runtime/train/run_parts.h"

namespace lockstep {

// Where the ops read fp32, the parameters themselves, which every rank has whole. Otherwise the
// fp32 master weights, of which every rank has its owned ranges, as it has of fp32 parameters that
// are sharded. Frozen parameters have no masters: they are what the ops read, widened.
class HostWeights {
 public:
  // `place`: where to have them whole, borrowed, where they do not lie so; empty: in memory that is
  // taken for that.
  HostWeights(const RunParts& parts, const RunMemory& memory, std::span<float> place = {});
  HostWeights(const HostWeights&) = delete;
  HostWeights& operator=(const HostWeights&) = delete;

  // The flat buffer (ParameterLayout::elements).
  float* data() { return whole_.empty() ? parameters_->data() : whole_.data(); }
  // Copies the weights from the device and all-gathers them where they are sharded; returns data().
  // All ranks together.
  float* read();
  // Gives the device what data() holds: masters and, rounded, parameters.
  void write();

 private:
  // Where every rank has but its part of what the ops read.
  bool sharded() const { return parts_.plan.shards_parameters; }
  // The ranges whose floats are in masters_, one after the other.
  std::vector<Range> stored() const;
  void read_frozen();

  const RunParts& parts_;
  const RunMemory& memory_;
  std::optional<HostCopy> parameters_;  // compute in fp32
  std::optional<HostCopy> masters_;     // stored(), to train
  std::span<float> whole_;              // else
  std::vector<float> own_;              // where whole_ has no other place
};

// The hash of the whole weights, from hashes that the backend takes of what lies in its memory.
class WeightsHash {
 public:
  WeightsHash(const RunParts& parts, const RunMemory& memory);

  struct Result {
    uint64_t weights = 0;  // of the fp32 weights: equal on all ranks
    uint64_t replica = 0;  // of this rank's parameters as the ops read them; 0: it has but a part
    uint64_t frozen = 0;   // of the frozen ones alone, as the ops read them: equal on all ranks
    bool finite = true;    // of all weights
  };
  // All ranks together.
  Result take();

 private:
  // A piece of the flat buffer, `at` elements into the memory that is hashed, and its first
  // element's number among all parameters in order of creation.
  struct Piece {
    int64_t at;
    int64_t elements;
    uint64_t index;
  };
  ContentHash hash(const std::byte* memory, DType dtype, const std::vector<Piece>& pieces);

  const RunParts& parts_;
  const RunMemory& memory_;
  // Of what every rank has whole; of the floats that this rank owns; and of its part of the frozen
  // parameters, in the memory of all.
  std::vector<Piece> whole_, owned_, frozen_;
  std::span<ContentHash> hashes_;
};

// The same hash of floats on the host.
uint64_t hash_parameters(const ParameterLayout& layout, const float* parameters);

// Name of the first parameter with a value that is NaN or infinite; empty when there is none.
std::string first_not_finite(const ParameterLayout& layout, const float* parameters);

}  // namespace lockstep
