#include "collectives/layout/error_feedback_layout.h"

#include <algorithm>

#include "collectives/layout/exchange_levels.h"
#include "runtime/base/error.h"

namespace lockstep::collectives {
namespace {

std::vector<LaneSum> groups_of(const LaneSum& range, int group_lanes) {
  std::vector<LaneSum> groups;
  for (int lane = range.first; lane < range.end(); lane += group_lanes)
    groups.push_back({lane, group_lanes});
  return groups;
}

// The sums that the joins make, by the term with which the right one of the two begins: join 1,
// join 2, ...
std::vector<LaneSum> sums_of_joins(std::span<const LaneSum> terms, const JoinedTerms& joined) {
  std::vector<LaneSum> made(static_cast<size_t>(joined.count() - 1));
  struct Open {
    LaneSum sum;
    int first = 0;  // term
  };
  std::vector<Open> open;
  for (int i = 0; i < joined.count(); ++i) {
    open.push_back({terms[static_cast<size_t>(joined.first + i)], i});
    for (int j = 0; j < joined.joins[static_cast<size_t>(i)]; ++j) {
      const Open right = open.back();
      open.pop_back();
      open.back().sum.count += right.sum.count;
      made[static_cast<size_t>(right.first - 1)] = open.back().sum;
    }
  }
  return made;
}

std::vector<LaneSum> all_joins(std::span<const LaneSum> terms, int lanes) {
  std::vector<LaneSum> made;
  for (const JoinedTerms& joined : join_terms(terms, lanes)) {
    const std::vector<LaneSum> of_sum = sums_of_joins(terms, joined);
    made.insert(made.end(), of_sum.begin(), of_sum.end());
  }
  return made;
}

}  // namespace

std::vector<LaneSum> rounded_sums(int lanes, int groups) {
  std::vector<LaneSum> sums = groups_of({0, lanes}, lanes / groups);
  const std::vector<LaneSum> joins = all_joins(sums, lanes);
  sums.insert(sums.end(), joins.begin(), joins.end());
  std::ranges::stable_sort(sums, {}, &LaneSum::count);
  return sums;
}

ErrorFeedbackLayout::ErrorFeedbackLayout(const LaneShares& shares,
                                         const Topology& topology,
                                         int rank,
                                         int64_t elements)
    : flat_elements_(elements) {
  LOCKSTEP_CHECK(shares.order != LaneOrder::kEachSummed && shares.lanes % shares.unit == 0);
  const auto range_of = [&](int r) {
    const LocalLanes lanes = shares.of(r);
    return LaneSum{lanes.first, lanes.count};
  };
  const std::vector<LaneSum> groups = groups_of(range_of(rank), shares.unit);
  for (const LaneSum& group : groups) keep(group, 1, 0);
  for (const LaneSum& sum : all_joins(groups, shares.lanes)) keep(sum, 1, 0);
  of_own_lanes_ = kept_.size();
  int part = 0, parts = 1;
  for (const ExchangeLevel& level : exchange_levels(topology, rank, shares.lanes, range_of)) {
    part = part * level.group.count + level.group.index_of(rank);
    parts *= level.group.count;
    Level& at = levels_.emplace_back();
    at.parts = parts;
    for (const JoinedTerms& joined : level.sums) {
      at.offsets.push_back(end_);
      for (const LaneSum& sum : sums_of_joins(level.terms, joined)) keep(sum, parts, part);
    }
  }
}

void ErrorFeedbackLayout::keep(const LaneSum& sum, int parts, int part) {
  kept_.push_back({sum, parts, part, end_});
  end_ += flat_elements_ / parts;
}

ErrorFeedbackResiduals ErrorFeedbackLayout::of_lanes(uint16_t* data,
                                                     const LaneSum& sum,
                                                     int64_t begin) const {
  for (size_t i = 0; i < of_own_lanes_; ++i) {
    if (kept_[i].sum == sum) return {data + kept_[i].offset + begin, 0};
  }
  return {};
}

ErrorFeedbackResiduals ErrorFeedbackLayout::of_level(uint16_t* data,
                                                     size_t level,
                                                     size_t sum,
                                                     int64_t bucket_begin) const {
  const Level& at = levels_[level];
  return {data + at.offsets[sum] + bucket_begin / at.parts, flat_elements_ / at.parts};
}

int64_t most_residuals(const LaneShares& shares, const Topology& topology, int64_t elements) {
  int64_t most = 0;
  for (int rank = 0; rank < topology.ranks(); ++rank)
    most = std::max(most, ErrorFeedbackLayout(shares, topology, rank, elements).elements());
  return most;
}

}  // namespace lockstep::collectives
