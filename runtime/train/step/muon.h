#pragma once
// Orthogonalizes Muon's matrices, between the update of the momentum and that of the weights.
//
// The update of the momentum overwrites the gradients, of which each rank owns slices. In each
// round of the plan (plan/muon_layout.h) the owners send their pieces of a matrix to the rank that
// takes it. That rank orthogonalizes it, and sends the pieces of the direction back. If every rank
// holds all gradients, the pieces need not be sent, and the directions are gathered.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/exchange/timed_waits.h"
#include "collectives/layout/sharding.h"
#include "runtime/exec/backend.h"
#include "runtime/plan/plan.h"

namespace lockstep::train {

class MuonDirections {
 public:
  // `gradients`: holds the momentum of this rank's ranges, and receives their directions. `memory`:
  // MuonLayout::bytes(). `communicator`: for memory of the backend. All borrowed.
  MuonDirections(const plan::Plan& plan,
                 collectives::Communicator& communicator,
                 exec::Backend& backend,
                 const collectives::OwnedFloats& gradients,
                 std::byte* memory);

  // Queues all rounds: always the same work on the same memory. Collective: all ranks call it
  // together.
  void run();

  // The indices of the matrices' parameters, increasing.
  const std::vector<size_t>& slots() const { return slots_; }

  // Reports waits to the borrowed observer from now on; null: to none.
  void observe(collectives::ExchangeObserver* observer) { waits_.observe(observer); }
  // Milliseconds that the host spent waiting for other ranks since begin_step().
  void begin_step() { waits_.clear(); }
  double exposed_ms() const { return waits_.ms(); }

 private:
  // Floats that are contiguous at both ends.
  struct Copy {
    const float* from;
    float* to;
    int64_t elements;
  };
  struct Round {
    std::vector<Copy> sent, received;            // of the momentum
    exec::NewtonSchulz shape;                    // of the matrix that this rank takes
    float* matrix = nullptr;                     // null: this rank takes none
    std::vector<Copy> sent_back, received_back;  // of the direction
    size_t slot_bytes = 0;                       // that each rank sends to each other one
    std::vector<float*> gathered;                // by matrix, if every rank holds everything
    size_t first = 0;                            // index of the first matrix in the plan
  };

  Round make_round(const plan::MuonRound& planned) const;
  void add_copies(const plan::MuonMatrix& matrix, Round& round) const;
  void copy(const std::vector<Copy>& copies);
  void exchange(size_t slot_bytes);
  void gather(const Round& round);

  const plan::Plan& plan_;
  const plan::MuonLayout& layout_;
  collectives::Communicator& communicator_;
  collectives::TimedWaits waits_;
  exec::Backend& backend_;
  collectives::OwnedFloats gradients_;
  float* matrix_;           // where the pieces are assembled
  float *send_, *receive_;  // (ranks, slot); without owned slices only receive_, for the gather
  std::byte* scratch_;
  std::vector<size_t> slots_;
  std::vector<Round> rounds_;
};

}  // namespace lockstep::train
