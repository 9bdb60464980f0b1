#pragma once
// The weights of a run as floats on the host: to initialize, save and hash them.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/exec/host_copy.h"
#include "runtime/train/run_context.h"

namespace lockstep::train {

// All weights as fp32, flat, in the backend's memory; null if this rank has only some of them.
float* whole_weights(const plan::Plan& plan, const RunMemory& memory);

// If the ops read fp32, these are the parameters themselves, of which every rank has all, or its
// owned ranges if they are sharded. Otherwise they are the fp32 master weights, of which every rank
// has the ranges that it updates. Frozen parameters have no masters: the 16-bit numbers that the
// ops read are converted to fp32. whole_weights() that the host can reach are used in place.
class HostWeights {
 public:
  // `storage`: memory for the assembled weights, borrowed. If it is empty, they are assembled in
  // memory that only steps use, or in memory of their own (MemoryPlan::weights_copy_bytes). So no
  // step may run while the weights are in use.
  HostWeights(const RunContext& context, const RunMemory& memory, std::span<float> storage = {});
  HostWeights(const HostWeights&) = delete;
  HostWeights& operator=(const HostWeights&) = delete;

  // The flat buffer (ParameterLayout::elements).
  float* data() { return full_.empty() ? whole_->data() : full_.data(); }
  // Copies the weights from the device and gathers them if they are sharded; returns data().
  // Collective: all ranks call it together.
  float* read();
  // Writes data() to the device: the masters and, rounded, the parameters.
  void write();

 private:
  // Whether every rank has only its part of the parameters.
  bool sharded() const { return context_.plan.sharding.shards_parameters(); }
  // The ranges whose floats are in masters_, packed.
  std::vector<collectives::Range> stored() const;
  void read_frozen();
  void write_rounded();

  const RunContext& context_;
  const RunMemory& memory_;
  std::optional<exec::HostCopy> whole_;    // the whole_weights(), if there are some
  std::optional<exec::HostCopy> masters_;  // the stored() ranges otherwise, in training
  std::span<float> full_;                  // the assembled weights otherwise
  std::vector<float> full_storage_;        // the memory of full_, if none was given
};

// The hash of all weights, computed from hashes that the backend takes of its memory.
class WeightsHash {
 public:
  WeightsHash(const RunContext& context, const RunMemory& memory);

  struct Result {
    uint64_t weights = 0;  // of the fp32 weights: equal on all ranks
    uint64_t replica = 0;  // of this rank's parameters as the ops read them; 0: it has only a part
    // of the frozen parameters alone, as the ops read them: equal on all ranks
    uint64_t frozen = 0;
    bool finite = true;  // of all weights
  };
  // All ranks together.
  Result take();

 private:
  // A piece of the flat buffer: its offset in the memory to hash, and its first element's index
  // among all parameters in order of creation.
  struct Piece {
    int64_t at;
    int64_t elements;
    uint64_t index;
  };
  ContentHash hash(const std::byte* memory, DType dtype, const std::vector<Piece>& pieces);

  const RunContext& context_;
  const RunMemory& memory_;
  // The pieces of all parameters; of the floats that this rank owns; and of its part of the frozen
  // parameters, in the memory of all parameters.
  std::vector<Piece> full_, owned_, frozen_;
  std::span<ContentHash> hashes_;
};

// The same hash of floats on the host.
uint64_t hash_parameters(const plan::ParameterLayout& layout, const float* parameters);

// Name of the first parameter with a NaN or infinite value; empty if there is none.
std::string first_not_finite(const plan::ParameterLayout& layout, const float* parameters);

}  // namespace lockstep::train
