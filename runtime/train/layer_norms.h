#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/sharding.h"
#include "runtime/exec/backend.h"
#include "runtime/plan/plan.h"

namespace lockstep {

// Sums of squares of whole tensors that lie in the flat buffers of which every rank owns parts. A
// tensor is cut where the plan's slices end (sharding.h: a slice belongs to one rank whatever their
// number), each piece is summed by the backend in its fixed order, and the pieces are added in the
// order of the flat buffer: so the bits do not depend on ranks or nodes.
class LayerNorms {
 public:
  // Of the tensors in `slots`, numbers of parameters in the layout; all borrowed.
  LayerNorms(const Plan& plan,
             const std::vector<size_t>& slots,
             Communicator& communicator,
             Backend& backend);

  // What a rank has of a flat array of floats: element `local` of them is that which stands at
  // `flat` in the whole.
  struct Piece {
    int64_t flat;
    int64_t local;  // among those that the rank updates, one range after the other
    int64_t elements;
  };
  const std::vector<Piece>& owned() const { return owned_; }

  // Of one tensor.
  struct Squares {
    double parameters = 0, directions = 0;
  };
  // Queues both sums of piece `index` of owned(). The pointers are to the piece.
  void measure(size_t index, const float* parameters, const float* directions);
  // Waits for the device and adds the pieces of all ranks; by place in `slots`. All ranks together.
  std::span<const Squares> sum();

 private:
  // In the order of the flat buffer.
  struct Source {
    size_t tensor;  // place in `slots`
    int rank;
    size_t index;  // among that rank's pieces
  };
  Communicator& communicator_;
  Backend& backend_;
  std::vector<Piece> owned_;
  std::vector<Source> sources_;
  size_t rank_pieces_ = 0;     // the most that a rank has
  std::span<double> results_;  // (pieces of mine, 2), in memory of allocate_host()
  std::vector<double> all_;    // (ranks, rank_pieces_, 2)
  std::vector<Squares> sums_;  // by tensor
};

}  // namespace lockstep
