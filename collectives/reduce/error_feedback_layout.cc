#include "collectives/reduce/error_feedback_layout.h"

#include <bit>

#include "runtime/base/error.h"

namespace lockstep {
namespace {

// The terms that join m adds, as a range of terms in a tree of any size.
LaneSum terms_of_join(int join) {
  const int half = join & -join;
  return {join - half, 2 * half};
}

}  // namespace

std::vector<LaneSum> rounded_sums(int lanes, int groups) {
  std::vector<LaneSum> sums;
  for (int count = lanes / groups; count <= lanes; count *= 2) {
    for (int first = 0; first < lanes; first += count) sums.push_back({first, count});
  }
  return sums;
}

ErrorFeedbackLayout::ErrorFeedbackLayout(
    int lanes, int groups, const Topology& topology, int rank, int64_t elements)
    : group_lanes_(lanes / groups),
      local_groups_(groups / topology.ranks()),
      flat_elements_(elements) {
  LOCKSTEP_CHECK(std::has_single_bit(static_cast<unsigned>(groups)) && groups <= lanes);
  LOCKSTEP_CHECK(local_groups_ * topology.ranks() == groups);
  // Keeps the joins of `terms` neighbouring sums of `count` lanes each; the first of these begins
  // at lane `first`.
  const auto keep_joins = [&](int terms, int first, int count, int part, int parts) {
    for (int join = 1; join < terms; ++join) {
      const LaneSum spanned = terms_of_join(join);
      kept_.push_back({{first + spanned.first * count, spanned.count * count}, parts, part, end_});
      end_ += elements / parts;
    }
  };
  const int local_lanes = lanes / topology.ranks();
  const int first = rank * local_lanes;
  for (int group = 0; group < local_groups_; ++group, end_ += elements)
    kept_.push_back({{first + group * group_lanes_, group_lanes_}, 1, 0, end_});
  keep_joins(local_groups_, first, group_lanes_, 0, 1);
  int count = local_lanes, part = 0, parts = 1;
  for (const RankGroup& group : topology.groups_of(rank)) {
    part = part * group.count + group.index_of(rank);
    parts *= group.count;
    levels_.push_back({end_, parts});
    keep_joins(group.count, group.first / (count / local_lanes) * count, count, part, parts);
    count *= group.count;
  }
}

ErrorFeedbackResiduals ErrorFeedbackLayout::of_lanes(uint16_t* data,
                                                     const LaneSum& local,
                                                     int64_t begin) const {
  if (local.count < group_lanes_) return {};
  if (local.count == group_lanes_)
    return {data + local.first / group_lanes_ * flat_elements_ + begin, 0};
  const int join = (local.first + local.count / 2) / group_lanes_;
  return {data + (local_groups_ + join - 1) * flat_elements_ + begin, 0};
}

ErrorFeedbackResiduals ErrorFeedbackLayout::of_level(uint16_t* data,
                                                     size_t level,
                                                     int64_t bucket_begin) const {
  const auto [offset, parts] = levels_[level];
  return {data + offset + bucket_begin / parts, flat_elements_ / parts};
}

}  // namespace lockstep
