#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/sharding.h"
#include "runtime/config/run_config.h"
#include "runtime/exec/backend.h"
#include "runtime/plan/plan.h"
#include "runtime/train/step/muon.h"
#include "runtime/train/step/state_sums.h"
#include "runtime/train/step/tensor_norms.h"
#include "runtime/train/step/update_groups.h"

namespace lockstep {

// Names of the moments that the optimizer keeps per parameter, as PyTorch names them.
std::vector<std::string> moment_names(const OptimizerConfig& config);

// What moments are stored as.
DType moment_dtype(const OptimizerConfig& config);

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
  OwnedFloats gradients;           // LAMB and Muon leave their directions there
  void* moments = nullptr;         // for each in order, what kept() says, one after the other
  TensorNorms* norms = nullptr;    // of adapted_slots(); for a layer-wise optimizer only
  MuonDirections* muon = nullptr;  // for Muon only
  bool summed = false;             // every update sums the bits of what it reads and writes
  uint64_t seed = 0;               // of the numbers that round moments of 16 bits
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
  // For a layer-wise optimizer: finds every tensor's rate for the next update(), which takes what
  // this leaves in the gradients' place; waits for the device. For Muon: leaves matrices' directions
  // there. Else nothing. All ranks together.
  void adapt();
  // Queues one step from the flat gradients: always the same work on the same memory.
  void update() { update_->run(); }

  const std::vector<Range>& owned() const { return owned_; }
  // What moments are stored as: kF32 or kBF16.
  DType moment_dtype() const { return moment_dtype_; }
  // Where, in bytes of the moments, those of moment `index` begin; behind the last one, where they
  // end.
  size_t moment_begin(size_t index) const;
  // Elements of the flat buffer that an array is kept of, and where the first one lies among those of
  // the array.
  struct KeptRange {
    Range range;
    int64_t local = 0;
  };
  // Of a moment or, from moments() on, of an array of all owned ranges such as the average of the
  // weights. Of the matrices that Muon takes there is no second moment (plan/moment_layout.h).
  const std::vector<KeptRange>& kept(size_t array) const {
    return array == 1 && moments_ > 1 ? second_kept_ : kept_;
  }
  int64_t owned_elements() const { return owned_elements_; }
  // What the ranges are cut into.
  const std::vector<StatePiece>& pieces() const { return pieces_; }
  // Null unless the memory says that it is summed.
  StateSums* state_sums() { return state_sums_.get(); }
  size_t moments() const { return moments_; }  // kept per parameter

 private:
  const OptimizerConfig& config_;
  std::vector<Range> owned_;
  int64_t owned_elements_ = 0;
  std::vector<KeptRange> kept_, second_kept_;
  void cut_pieces(const ParameterLayout& layout);
  int64_t place_of(const StatePiece& piece, size_t moment) const;
  // What updates a piece; `moments` of those that are kept move with it.
  OptimizerSlice slice_of(const ParameterLayout& layout,
                          const StatePiece& piece,
                          size_t moments) const;
  void prepare_updates(const ParameterLayout& layout);
  bool has_direction(const UpdateGroup& group) const;
  void measure();
  double trust_ratio(const UpdateGroup& group, const TensorNorms::Squares& squares) const;
  // `trust` multiplies a tensor's rate.
  OptimizerUpdate update_for(const UpdateGroup& group, double trust) const;
  OptimizerUpdate direction_for(const UpdateGroup& group) const;  // of LAMB and Muon

  Backend& backend_;
  OptimizerMemory memory_;
  size_t moments_;  // kept per parameter
  DType moment_dtype_;
  std::span<MomentRounding> rounding_;  // one; none where moments are floats
  std::vector<StatePiece> pieces_;
  std::unique_ptr<StateSums> state_sums_;  // null: nothing is summed
  UpdateGroups groups_;
  std::span<OptimizerUpdate> updates_;            // by group
  std::span<OptimizerUpdate> direction_updates_;  // of LAMB and Muon, by group
  UpdateStep step_;                               // of the next update
  std::unique_ptr<FlatUpdate> update_;
  std::unique_ptr<FlatUpdate> directions_;       // of LAMB and Muon; moves the moments
  std::unique_ptr<RepeatedWork> adapting_work_;  // of a layer-wise optimizer and Muon
};

}  // namespace lockstep
