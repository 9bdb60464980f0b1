#pragma once
// Norms of tensors for layer-wise optimizers (LARS, LAMB, Adafactor).

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/exchange/timed_waits.h"
#include "runtime/exec/backend.h"
#include "runtime/plan/plan.h"

namespace lockstep::train {

// Sums of squares of whole tensors in flat buffers of which every rank owns parts. They are exact
// (exact_sum.h), so the bits do not depend on ranks, nodes or buckets.
class TensorNorms {
 public:
  // Measures `tensors` of the layout. All borrowed.
  TensorNorms(const plan::Plan& plan,
              const std::vector<plan::TensorPart>& tensors,
              collectives::Communicator& communicator,
              exec::Backend& backend);

  // A rank's part of a tensor in one bucket. It begins with a chunk of squares, unless a tensor
  // begins within one; so chunks are the same however ranks cut a tensor. Element `local` of the
  // rank's memory is element `flat` of the flat buffer.
  struct Piece {
    size_t tensor;  // index in `tensors`
    int64_t flat;
    int64_t local;  // among the elements that the rank updates, which are packed
    int64_t elements;
  };
  const std::vector<Piece>& owned() const { return owned_; }

  // Sums of squares of one tensor.
  struct Squares {
    double parameters = 0, directions = 0;
  };
  // Queues both sums of a piece of owned(). The pointers are to the piece.
  void measure(const Piece& piece, const float* parameters, const float* directions);
  // Waits for the device, adds up the pieces of all ranks, and starts from zero again. Returns the
  // sums by index in `tensors`. Collective: all ranks call it together.
  std::span<const Squares> sum();

  // Reports waits to the borrowed observer from now on; null: to none.
  void observe(collectives::ExchangeObserver* observer) { waits_.observe(observer); }
  // Milliseconds that the host spent waiting for other ranks since begin_step().
  void begin_step() { waits_.clear(); }
  double exposed_ms() const { return waits_.ms(); }

 private:
  struct Sums {
    ExactSum parameters, directions;
  };
  collectives::Communicator& communicator_;
  collectives::TimedWaits waits_;
  exec::Backend& backend_;
  std::vector<Piece> owned_;
  // Every rank adds up the sums of a share of the tensors for all ranks. The number of tensors is
  // padded, so that all shares have one size.
  size_t share_ = 0;
  // (ranks, share_): sums of this rank's pieces, in memory of allocate_host()
  std::span<Sums> mine_;
  std::vector<Sums> received_;   // (ranks, share_): all ranks' sums of this rank's share
  std::vector<Squares> totals_;  // (ranks, share_)
};

}  // namespace lockstep::train
