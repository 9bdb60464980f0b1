#include "collectives/reduce/gradient_exchange.h"

#include <utility>

#include "runtime/base/error.h"

namespace lockstep::collectives {

GradientExchange::GradientExchange(GradientExchangeSetup setup)
    : slices_(setup.communicators.slices),
      math_(setup.math),
      node_(setup.communicators.node),
      rank_(setup.communicators.control.rank()),
      waits_(slices_, node_),
      shares_(setup.shares),
      lanes_(shares_.of(rank_)),
      turns_(shares_.order == LaneOrder::kEachSummed ? shares_.most() : lanes_.count),
      gradients_(std::move(setup.gradients)),
      own_(math_,
           gradients_,
           setup.topology.part_of(rank_),
           shares_.ranks,
           setup.sums,
           setup.measures),
      last_exchange_(gradients_.buckets.size()) {
  LOCKSTEP_CHECK(slices_.size() == shares_.ranks && slices_.rank() == rank_ &&
                 setup.communicators.control.size() == shares_.ranks);
  LOCKSTEP_CHECK(gradients_.gaps.size() == gradients_.offsets.size());
  for (int rank = 0; rank < shares_.ranks; ++rank)
    lanes_of_ranks_.push_back(shares_.of(rank).count);
}

void GradientExchange::begin_step(TransferChecksums* transfers) {
  transfers_ = transfers;
  lane_ = 0;
  waits_.clear();
  own_.begin_step();
}

void GradientExchange::gather_lanes(std::byte* all, size_t bytes) {
  if (ranks() == 1) return;
  LOCKSTEP_CHECK(together());
  waits_.timed(Wait::kLanes, -1, [&] {
    const bool even = shares_.lanes % ranks() == 0;  // one slot of a rank is faster for a library
    if (even) {
      slices_.all_gather(all, bytes * static_cast<size_t>(lanes_.count));
    } else {
      slices_.all_gather(all, bytes, lanes_of_ranks_);
    }
  });
}

void GradientExchange::bucket_begins(int bucket) {
  uint64_t last = 0;  // exchange that read the memory which this bucket is about to overwrite
  int last_bucket = 0;
  for (int other = 0; other < static_cast<int>(last_exchange_.size()); ++other) {
    const uint64_t number = last_exchange_[static_cast<size_t>(other)];
    if (number <= last || !gradients_.overlap(bucket, other)) continue;
    last = number;
    last_bucket = other;
  }
  if (last > 0) complete_until(last, last_bucket);
  for (const Range& gap : gradients_.gaps[static_cast<size_t>(bucket)])
    math_.fill_zeros(gradients_.at(lane_gradients(), bucket, gap.begin), gap.size());
}

void GradientExchange::reduce() { LOCKSTEP_CHECK(lane_ == (together() ? lanes_.count : turns_)); }

}  // namespace lockstep::collectives
