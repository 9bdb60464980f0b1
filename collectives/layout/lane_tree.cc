#include "collectives/layout/lane_tree.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace lockstep::collectives {

bool are_joined(const LaneSum& left, const LaneSum& right, int lanes) {
  return left.first % (2 * left.count) == 0 &&
         right.end() == std::min(left.end() + left.count, lanes);
}

bool JoinedTerms::is_balanced() const {
  if (!std::has_single_bit(joins.size())) return false;
  for (size_t i = 0; i < joins.size(); ++i)
    if (joins[i] != std::countr_one(i)) return false;
  return true;
}

std::vector<JoinedTerms> join_terms(std::span<const LaneSum> terms, int lanes) {
  std::vector<JoinedTerms> sums;
  for (size_t i = 0; i < terms.size(); ++i) {
    sums.push_back({terms[i], static_cast<int>(i), {0}});
    while (sums.size() > 1 && are_joined(sums[sums.size() - 2].sum, sums.back().sum, lanes)) {
      const JoinedTerms right = std::move(sums.back());
      sums.pop_back();
      JoinedTerms& left = sums.back();
      left.sum.count += right.sum.count;
      left.joins.insert(left.joins.end(), right.joins.begin(), right.joins.end());
      ++left.joins.back();
    }
  }
  return sums;
}

std::vector<LaneSum> largest_sums(const LaneSum& range, int lanes) {
  std::vector<LaneSum> sums;
  for (int lane = range.first; lane < range.end(); ++lane) {
    sums.push_back({lane, 1});
    while (sums.size() > 1 && are_joined(sums[sums.size() - 2], sums.back(), lanes)) {
      sums[sums.size() - 2].count += sums.back().count;
      sums.pop_back();
    }
  }
  return sums;
}

SumSchedule::SumSchedule(std::span<const std::vector<LaneSum>> batches, int lanes) {
  const auto first_free = [&] {
    int buffer = 0;
    while (std::ranges::find(buffers_of_sums_, buffer) != buffers_of_sums_.end()) ++buffer;
    return buffer;
  };
  for (const std::vector<LaneSum>& arriving : batches) {
    Batch& batch = batches_.emplace_back();
    for (const LaneSum& sum : arriving) {
      sums_.push_back(sum);
      batch.buffers.push_back(first_free());
      buffers_of_sums_.push_back(batch.buffers.back());
      buffers_ = std::max(buffers_, batch.buffers.back() + 1);
    }
    // Joins of the sums before `i` are done.
    for (size_t i = 1; i < sums_.size();) {
      if (!are_joined(sums_[i - 1], sums_[i], lanes)) {
        ++i;
        continue;
      }
      sums_[i - 1].count += sums_[i].count;
      batch.joins.push_back({buffers_of_sums_[i - 1], buffers_of_sums_[i], sums_[i - 1]});
      const auto at = static_cast<std::ptrdiff_t>(i);
      sums_.erase(sums_.begin() + at);
      buffers_of_sums_.erase(buffers_of_sums_.begin() + at);
      i = std::max<size_t>(i - 1, 1);
    }
  }
}

}  // namespace lockstep::collectives
