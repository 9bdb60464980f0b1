#pragma once
// Norms of tensors for layer-wise optimizers (LARS, LAMB).

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/timed_waits.h"
#include "runtime/exec/backend.h"
#include "runtime/plan/plan.h"

namespace lockstep {

// Sums of squares of whole tensors that lie in the flat buffers of which every rank owns parts.
// They are exact (exact_sum.h): the bits depend neither on ranks and nodes nor on buckets.
class TensorNorms {
 public:
  // Of the tensors in `slots`, numbers of parameters in the layout; all borrowed.
  TensorNorms(const Plan& plan,
              const std::vector<size_t>& slots,
              Communicator& communicator,
              Backend& backend);

  // What a rank has of a tensor in one of its parts: element `local` is that which stands at `flat`
  // in the whole buffer.
  struct Piece {
    size_t tensor;  // place in `slots`
    int64_t flat;
    int64_t local;  // among those that the rank updates, one range after the other
    int64_t elements;
  };
  const std::vector<Piece>& owned() const { return owned_; }

  // Of one tensor.
  struct Squares {
    double parameters = 0, directions = 0;
  };
  // Queues both sums of a piece of owned(). The pointers are to the piece.
  void measure(const Piece& piece, const float* parameters, const float* directions);
  // Waits for the device and adds the pieces of all ranks; by place in `slots`. Then it begins
  // anew. All ranks together.
  std::span<const Squares> sum();

  // Reports to it, borrowed, from now on; null: to none.
  void observe(ExchangeObserver* observer) { waits_.observe(observer); }
  // Milliseconds that the host spent waiting for other ranks since begin_step().
  void begin_step() { waits_.clear(); }
  double exposed_ms() const { return waits_.ms(); }

 private:
  struct Sums {
    ExactSum parameters, directions;
  };
  Communicator& communicator_;
  TimedWaits waits_;
  Backend& backend_;
  std::vector<Piece> owned_;
  // Every rank adds up the sums of a share of the tensors for all. The tensors are padded to shares
  // of one size.
  size_t share_ = 0;
  std::span<Sums> mine_;         // (ranks, share_) of my pieces, in memory of allocate_host()
  std::vector<Sums> received_;   // (ranks, share_) of my share
  std::vector<Squares> totals_;  // (ranks, share_)
};

}  // namespace lockstep
