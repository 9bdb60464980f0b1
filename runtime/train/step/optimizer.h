#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/layout/sharding.h"
#include "runtime/config/run_config.h"
#include "runtime/exec/backend.h"
#include "runtime/plan/plan.h"
#include "runtime/train/step/adafactor.h"
#include "runtime/train/step/muon.h"
#include "runtime/train/step/state_checksums.h"
#include "runtime/train/step/tensor_norms.h"
#include "runtime/train/step/update_groups.h"

namespace lockstep::train {

// Names of the moments that the optimizer keeps per parameter, as PyTorch names them.
std::vector<std::string> moment_names(const OptimizerConfig& config);

// The names of all arrays that a checkpoint has of the optimizer: the moments, and Adafactor's
// averages.
std::vector<std::string> saved_moments(const OptimizerConfig& config);

// The moment with averages or sums of squared gradients, which could overflow; empty if there is
// none.
std::string squares_moment(const OptimizerConfig& config);
// Bit m is set if moment m is never negative.
uint8_t square_moments(const OptimizerConfig& config);
// What the first moment begins with: 0, except for Adagrad's sums, which are never negative.
float initial_moment(const OptimizerConfig& config);

// The type in which moments are stored: kF32, kBF16, or kU8 for MomentBlocks.
DType moment_dtype(const OptimizerConfig& config);

// The weights, of which this rank updates its owned ranges; borrowed.
struct FlatWeights {
  std::byte* parameters = nullptr;  // of type `compute`; flat unless packed
  DType compute = DType::kF32;
  float* masters = nullptr;  // the owned ranges, packed; null if compute is fp32
  bool packed = false;       // `parameters` too holds only the owned ranges, packed

  // The floats from element `flat` of the flat buffer, which is element `local` of the owned
  // ranges.
  float* floats(int64_t flat, int64_t local) const;
  // A slice that updates `range`, which begins at element `local` of the owned ranges.
  exec::OptimizerSlice slice(const collectives::Range& range, int64_t local) const;
};

// The memory that an optimizer works on; borrowed.
struct OptimizerMemory {
  FlatWeights weights;
  collectives::OwnedFloats gradients;  // LAMB, Muon and Adafactor write their directions there
  void* moments = nullptr;       // for each moment in order its kept() ranges, one after the other
  TensorNorms* norms = nullptr;  // of adapted_tensors(); for a layer-wise optimizer only
  MuonDirections* muon = nullptr;        // for Muon only
  FactoredAverages* factored = nullptr;  // for Adafactor only
  bool by_range = false;                 // the owned ranges are updated one by one
  bool gated = false;                    // update() passes the backend's UpdateGate
  bool checksummed = false;  // every update computes checksums of what it reads and writes
  uint64_t seed = 0;         // of the random numbers that round moments of 16 bits
};

// Updates this rank's ranges of the flat parameter buffer. The ranges are cut at the boundaries of
// tensors, because tensors are updated differently: by default, biases and norm gains have no
// weight decay; running statistics are averaged, whatever the optimizer; a layer-wise optimizer has
// a rate for every tensor.
class Optimizer {
 public:
  Optimizer(const OptimizerConfig& config,
            const plan::ParameterLayout& layout,
            std::vector<collectives::Range> owned,
            exec::Backend& backend,
            const OptimizerMemory& memory);

  // Sets what the next update() does, and queues this for the device. `step` counts from 1 (bias
  // correction). `gradient_scale` multiplies every gradient: it contains the mean over samples and
  // the clipping. A gated update() takes that of the gate instead. `norm`, for Adafactor: of all
  // gradients, times the scale.
  void prepare(double lr, double gradient_scale, int64_t step, double norm = 0);
  // For a layer-wise optimizer: computes every tensor's rate for the next update(), and waits for
  // the device. For LAMB, Muon and Adafactor: overwrites the gradients with directions, which
  // update() then reads. Otherwise does nothing. Collective: all ranks call it together.
  void adapt();
  // Queues one step from the flat gradients: always the same work on the same memory.
  void update() {
    for (const auto& update : flat_updates_) update->run();
  }
  // The same for one owned range, if they are updated one by one.
  void update(size_t range) { flat_updates_[range]->run(); }

  const std::vector<collectives::Range>& owned() const { return owned_; }
  // The type in which moments are stored: kF32, kBF16, or kU8 for MomentBlocks.
  DType moment_dtype() const { return moment_dtype_; }
  // The byte offset of moment `index` in the moments; for index moments(), the end of the last one.
  size_t moment_begin(size_t index) const;
  // Elements of the flat buffer for which an array is kept, and the index of the first one in the
  // array.
  struct KeptRange {
    collectives::Range range;
    int64_t local = 0;
  };
  // The ranges of a moment or, from moments() on, of an array of all owned ranges, such as the
  // average of the weights. Some matrices have no last moment (plan/moment_layout.h).
  const std::vector<KeptRange>& kept(size_t array) const {
    return array + 1 == moments_ ? last_kept_ : kept_;
  }
  int64_t owned_elements() const { return owned_elements_; }
  // The averages of Adafactor's matrices, which all ranks keep; none for other optimizers.
  const FactoredAverages* factored() const { return memory_.factored; }
  // The owned ranges, cut at the boundaries of tensors.
  const std::vector<StatePiece>& pieces() const { return pieces_; }
  // Null unless the memory is `checksummed`.
  StateChecksums* state_checksums() { return state_checksums_.get(); }
  size_t moments() const { return moments_; }  // kept per parameter

 private:
  const OptimizerConfig& config_;
  std::vector<collectives::Range> owned_;
  int64_t owned_elements_ = 0;
  std::vector<KeptRange> kept_, last_kept_;
  void cut_pieces(const plan::ParameterLayout& layout);
  int64_t moment_index(const StatePiece& piece, size_t moment) const;
  // The slice that updates a piece, together with its first `moments` moments.
  exec::OptimizerSlice slice_of(const plan::ParameterLayout& layout,
                                const StatePiece& piece,
                                size_t moments) const;
  void prepare_updates(const plan::ParameterLayout& layout);
  bool has_direction(const UpdateGroup& group) const;
  // Whether adapt() computes something between the gradients and the update.
  bool adapts() const { return memory_.norms != nullptr || memory_.muon != nullptr; }
  void load();
  void run_directions();
  void measure();
  double trust_ratio(const UpdateGroup& group, const TensorNorms::Squares& squares) const;
  double adafactor_rate(const UpdateGroup& group, const TensorNorms::Squares& squares) const;
  // `trust` multiplies a tensor's rate, or is the rate of Adafactor's step.
  exec::OptimizerUpdate update_for(const UpdateGroup& group, double trust) const;
  exec::OptimizerUpdate direction_for(const UpdateGroup& group) const;

  exec::Backend& backend_;
  OptimizerMemory memory_;
  size_t moments_;  // kept per parameter
  DType moment_dtype_;
  uint8_t square_moments_;
  std::span<exec::MomentRounding> rounding_;  // one; none if moments are floats
  std::vector<StatePiece> pieces_;
  std::unique_ptr<StateChecksums> state_checksums_;  // null: no checksums
  UpdateGroups groups_;
  std::vector<int64_t> elements_;                       // of adapted_tensors()
  std::span<exec::OptimizerUpdate> updates_;            // by group
  std::span<exec::OptimizerUpdate> direction_updates_;  // of those with directions, by group
  exec::UpdateStep step_;                               // of the next update
  std::vector<std::unique_ptr<exec::FlatUpdate>> flat_updates_;  // one, or one by owned range
  std::unique_ptr<exec::FlatUpdate> directions_;                 // moves the moments
  // What a layer-wise optimizer and Muon do between gradients and update. Before it, Adafactor
  // sums squares.
  std::unique_ptr<exec::RepeatedWork> adapting_work_, summing_work_;
};

}  // namespace lockstep::train
