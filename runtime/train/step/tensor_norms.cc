#include "runtime/train/step/tensor_norms.h"

#include <algorithm>

#include "collectives/layout/sharding.h"
#include "runtime/base/exact_sum.h"

namespace lockstep::train {

TensorNorms::TensorNorms(const plan::Plan& plan,
                         const std::vector<plan::TensorPart>& tensors,
                         collectives::Communicator& communicator,
                         exec::Backend& backend)
    : communicator_(communicator), waits_(communicator, nullptr), backend_(backend) {
  const int rank = communicator.rank(), ranks = plan.sharding.topology.ranks();
  for (const collectives::Range& bucket : plan.layout.buckets) {
    const collectives::Range part =
        collectives::part_of(bucket, plan.sharding.topology.part_of(rank), ranks);
    for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
      const collectives::Range& range = tensors[tensor].range;
      int64_t begin = std::max(part.begin, range.begin);
      const int64_t end = std::min(part.end, range.end);
      while (begin < end) {
        const int64_t chunk_end = (begin / kSquaresChunk + 1) * kSquaresChunk;
        const int64_t next = begin % kSquaresChunk == 0 ? end : std::min(chunk_end, end);
        owned_.push_back(
            {tensor, begin, plan.sharding.owned_index_of(rank, bucket, begin), next - begin});
        begin = next;
      }
    }
  }
  const auto shares = static_cast<size_t>(ranks);
  share_ = (tensors.size() + shares - 1) / shares;
  mine_ = backend.host_array<Sums>(std::max<size_t>(share_, 1) * shares);
  received_.resize(share_ * shares);
  totals_.resize(share_ * shares);
}

void TensorNorms::measure(const Piece& piece, const float* parameters, const float* directions) {
  Sums& sums = mine_[piece.tensor];
  backend_.add_squares(parameters, piece.elements, &sums.parameters);
  backend_.add_squares(directions, piece.elements, &sums.directions);
}

std::span<const TensorNorms::Squares> TensorNorms::sum() {
  backend_.synchronize();
  if (share_ == 0) return {};
  using Wait = collectives::ExchangeObserver::Wait;
  const collectives::Arrival sums_of_others = {
      .handle = communicator_.start_exchange({reinterpret_cast<const std::byte*>(mine_.data()),
                                              reinterpret_cast<std::byte*>(received_.data()),
                                              share_ * sizeof(Sums),
                                              communicator_.everyone()})};
  waits_.wait(sums_of_others, Wait::kNorms, -1);
  const auto rank = static_cast<size_t>(communicator_.rank()),
             ranks = static_cast<size_t>(communicator_.size());
  for (size_t i = 0; i < share_; ++i) {
    Sums sums = mine_[rank * share_ + i];
    for (size_t r = 0; r < ranks; ++r) {
      if (r == rank) continue;
      sums.parameters += received_[r * share_ + i].parameters;
      sums.directions += received_[r * share_ + i].directions;
    }
    totals_[rank * share_ + i] = {sums.parameters.value(), sums.directions.value()};
  }
  waits_.timed(Wait::kNorms, -1, [&] {
    communicator_.all_gather(reinterpret_cast<std::byte*>(totals_.data()),
                             share_ * sizeof(Squares));
  });
  std::fill(mine_.begin(), mine_.end(), Sums{});
  return totals_;
}

}  // namespace lockstep::train
