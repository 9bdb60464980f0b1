#pragma once
// Muon's matrices made orthogonal, between the momentum's update and that of the weights.
//
// What the momentum leaves in the gradients' place lies in slices that ranks own. For each round of
// the plan (plan/muon_layout.h) their pieces of a matrix travel to the rank that takes it; that makes
// it orthogonal; and the pieces of the direction travel back. Where every rank has all of the
// gradients nothing needs to be brought, and the directions are gathered.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/sharding.h"
#include "collectives/timed_waits.h"
#include "runtime/exec/backend.h"
#include "runtime/plan/plan.h"

namespace lockstep {

class MuonDirections {
 public:
  // `gradients`: what holds the momentum of this rank's ranges and is to hold their directions;
  // `memory`: MuonLayout::bytes(). `communicator`: of memory of the backend. All borrowed.
  MuonDirections(const Plan& plan,
                 Communicator& communicator,
                 Backend& backend,
                 const OwnedFloats& gradients,
                 std::byte* memory);

  // Queues it: always the same work on the same memory. All ranks together.
  void run();

  // The matrices' parameters, by number, increasing.
  const std::vector<size_t>& slots() const { return slots_; }

  // Reports to it, borrowed, from now on; null: to none.
  void observe(ExchangeObserver* observer) { waits_.observe(observer); }
  // Milliseconds that the host spent waiting for other ranks since begin_step().
  void begin_step() { waits_.clear(); }
  double exposed_ms() const { return waits_.ms(); }

 private:
  // Floats that follow each other in both places.
  struct Copy {
    const float* from;
    float* to;
    int64_t elements;
  };
  struct Round {
    std::vector<Copy> sent, received;            // of the momentum
    NewtonSchulz shape;                          // of the matrix that this rank takes
    float* matrix = nullptr;                     // null: it takes none
    std::vector<Copy> sent_back, received_back;  // of the direction
    size_t slot_bytes = 0;                       // that each rank sends each other one
    std::vector<float*> gathered;                // by matrix, where every rank has all
    size_t first = 0;                            // matrix of the plan
  };

  Round make_round(const MuonRound& planned) const;
  void add_copies(const MuonMatrix& matrix, Round& round) const;
  void copy(const std::vector<Copy>& copies);
  void exchange(size_t slot_bytes);
  void gather(const Round& round);

  const Plan& plan_;
  const MuonLayout& layout_;
  Communicator& communicator_;
  TimedWaits waits_;
  Backend& backend_;
  OwnedFloats gradients_;
  float* matrix_;           // where pieces are put together
  float *send_, *receive_;  // (ranks, slot), where slices are owned; else receive_ for all
  std::byte* scratch_;
  std::vector<size_t> slots_;
  std::vector<Round> rounds_;
};

}  // namespace lockstep
