#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/sharding.h"
#include "runtime/config/run_config.h"
#include "runtime/exec/backend.h"
#include "runtime/plan/plan.h"
#include "runtime/train/step/state_sums.h"
#include "runtime/train/step/tensor_norms.h"
#include "runtime/train/step/update_groups.h"

namespace lockstep {

// Names of the moments that the optimizer keeps per parameter, as PyTorch names them.
std::vector<std::string> moment_names(const OptimizerConfig& config);

// The weights of which this rank updates its owned ranges; borrowed.
struct FlatWeights {
  std::byte* parameters = nullptr;  // of type `compute`; flat unless packed
  DType compute = DType::kF32;
  float* masters = nullptr;  // the owned ranges one after the other; null where compute is fp32
  bool packed = false;       // the parameters too are the owned ranges one after the other

  // The floats from element `flat` of the whole on, which is element `local` of the owned ranges.
  float* floats(int64_t flat, int64_t local) const;
  // A slice that updates `range`, which begins at element `local` of the owned ranges.
  OptimizerSlice slice(const Range& range, int64_t local) const;
};

// What an optimizer works on; borrowed.
struct OptimizerMemory {
  FlatWeights weights;
  OwnedFloats gradients;         // LAMB leaves its directions there
  float* moments = nullptr;      // for each moment in order, the owned ranges one after the other
  TensorNorms* norms = nullptr;  // of adapted_slots(); for a layer-wise optimizer only
  bool summed = false;           // every update sums the bits of what it reads and writes
};

// Updates the ranges of the flat parameter buffer that are this rank's to update. The ranges
// are cut where a tensor begins: by default biases and norm gains are not decayed, running
// statistics are averaged whatever the optimizer, and a layer-wise one has a rate for every tensor.
class Optimizer {
 public:
  Optimizer(const OptimizerConfig& config,
            const ParameterLayout& layout,
            std::vector<Range> owned,
            Backend& backend,
            const OptimizerMemory& memory);

  // What the next update() does. `step` counts from 1 (bias correction); `gradient_scale`
  // multiplies every gradient, and carries the mean over samples and the clipping.
  void prepare(double lr, double gradient_scale, int64_t step);
  // For a layer-wise optimizer, else nothing: finds every tensor's rate for the next update(),
  // which takes what this leaves in the gradients' place. All ranks together; waits for the device.
  void adapt();
  // Queues one step from the flat gradients: always the same work on the same memory.
  void update() { update_->run(); }

  const std::vector<Range>& owned() const { return owned_; }
  // Where, in the moments, those of moment `index` begin, and of these those of owned range
  // `range`.
  int64_t moment_offset(size_t index) const {
    return static_cast<int64_t>(index) * owned_elements_;
  }
  int64_t moment_offset(size_t index, size_t range) const;
  // What the ranges are cut into.
  const std::vector<StatePiece>& pieces() const { return pieces_; }
  // Null unless the memory says that it is summed.
  StateSums* state_sums() { return state_sums_.get(); }
  // All moments together.
  int64_t moment_elements() const { return owned_elements_ * static_cast<int64_t>(moments_); }

 private:
  const OptimizerConfig& config_;
  std::vector<Range> owned_;
  std::vector<int64_t> local_offsets_;  // of each owned range
  int64_t owned_elements_ = 0;
  void cut_pieces(const ParameterLayout& layout);
  // What updates a piece; `moments` of those that are kept move with it.
  OptimizerSlice slice_of(const StatePiece& piece, size_t moments) const;
  void prepare_updates();
  void measure();
  double trust_ratio(const UpdateGroup& group, const TensorNorms::Squares& squares) const;
  // `trust` multiplies a tensor's rate.
  OptimizerUpdate update_for(const UpdateGroup& group, double trust) const;
  OptimizerUpdate direction_for(const UpdateGroup& group) const;  // of LAMB

  Backend& backend_;
  OptimizerMemory memory_;
  size_t moments_;  // kept per parameter
  std::vector<StatePiece> pieces_;
  std::unique_ptr<StateSums> state_sums_;  // null: nothing is summed
  UpdateGroups groups_;
  std::span<OptimizerUpdate> updates_;            // by group
  std::span<OptimizerUpdate> direction_updates_;  // of LAMB, by group
  UpdateStep step_;                               // of the next update
  std::unique_ptr<FlatUpdate> update_;
  std::unique_ptr<FlatUpdate> directions_;        // of LAMB; moves the moments
  std::unique_ptr<RepeatedWork> measuring_work_;  // of a layer-wise optimizer
};

}  // namespace lockstep
