#include "runtime/train/layer_norms.h"

#include <algorithm>

namespace lockstep {

LayerNorms::LayerNorms(const Plan& plan,
                       const std::vector<size_t>& slots,
                       Communicator& communicator,
                       Backend& backend)
    : communicator_(communicator), backend_(backend), sums_(slots.size()) {
  std::vector<size_t> order(slots.size());  // by place in the flat buffer
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto slot_of = [&](size_t tensor) -> const ParameterSlot& {
    return plan.layout.slots[slots[tensor]];
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return slot_of(a).offset < slot_of(b).offset;
  });
  const int ranks = plan.topology.ranks();
  std::vector<size_t> counts(static_cast<size_t>(ranks));
  for (size_t b = 0; b < plan.buckets.size(); ++b) {
    for (int s = 0; s < plan.lanes; ++s) {
      const Range slice = lockstep::part_of(plan.buckets[b], s, plan.lanes);
      const int part = s / (plan.lanes / ranks);
      const int rank = plan.topology.owner_of(part);
      for (size_t tensor : order) {
        const ParameterSlot& slot = slot_of(tensor);
        const int64_t begin = std::max(slice.begin, slot.offset),
                      end = std::min(slice.end, slot.offset + slot.elements);
        if (begin >= end) continue;
        sources_.push_back({tensor, rank, counts[static_cast<size_t>(rank)]++});
        if (rank == communicator.rank())
          owned_.push_back({begin, plan.place_of(rank, b, begin), end - begin});
      }
    }
  }
  rank_pieces_ = *std::max_element(counts.begin(), counts.end());
  results_ = backend.host_array<double>(2 * std::max<size_t>(owned_.size(), 1));
  all_.resize(2 * rank_pieces_ * static_cast<size_t>(ranks));
}

void LayerNorms::measure(size_t index, const float* parameters, const float* directions) {
  const int64_t n = owned_[index].elements;
  backend_.sums_of_squares(parameters, n, 1, &results_[2 * index]);
  backend_.sums_of_squares(directions, n, 1, &results_[2 * index + 1]);
}

std::span<const LayerNorms::Squares> LayerNorms::sum() {
  backend_.synchronize();
  const auto at = [&](int rank) { return 2 * rank_pieces_ * static_cast<size_t>(rank); };
  std::copy_n(results_.begin(),
              2 * owned_.size(),
              all_.begin() + static_cast<ptrdiff_t>(at(communicator_.rank())));
  if (rank_pieces_ > 0)
    communicator_.all_gather(reinterpret_cast<std::byte*>(all_.data()),
                             2 * rank_pieces_ * sizeof(double));
  std::fill(sums_.begin(), sums_.end(), Squares{});
  for (const Source& source : sources_) {
    const double* const piece = &all_[at(source.rank) + 2 * source.index];
    sums_[source.tensor].parameters += piece[0];
    sums_[source.tensor].directions += piece[1];
  }
  return sums_;
}

}  // namespace lockstep
