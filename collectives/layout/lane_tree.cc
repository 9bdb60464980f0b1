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

bool SumSchedule::Batch::is_like(const Batch& other) const {
  return buffers == other.buffers &&
         std::ranges::equal(passes, other.passes, [](const Pass& a, const Pass& b) {
           return a.buffers == b.buffers && a.joins == b.joins && a.into == b.into;
         });
}

namespace {

// Makes a schedule: the sums that wait, in the order of their lanes, and the buffers in use.
class Scheduler {
 public:
  Scheduler(std::span<const std::vector<LaneSum>> batches, int lanes, int width) : lanes_(lanes) {
    std::vector<LaneSum> all;
    for (const std::vector<LaneSum>& batch : batches)
      all.insert(all.end(), batch.begin(), batch.end());
    if (all.empty()) return;
    final_ = largest_sums({all.front().first, all.back().end() - all.front().first}, lanes);
    const bool equal =
        std::ranges::all_of(all, [&](const LaneSum& s) { return s.count == all.front().count; });
    const bool one_each = all.size() == batches.size();
    // Other batches arrive at positions of the tree that have no common size.
    if (equal && (one_each || batches.size() == 1)) group_ = all.front().count * width;
    // Lanes that run together are added together.
    if (equal && !one_each && batches.size() > 1)
      group_ = all.front().count * static_cast<int>(batches.front().size());
    const size_t groups = all.size() / static_cast<size_t>(width);
    by_size_ =
        equal && one_each && final_.size() == 1 && groups > 1 && std::has_single_bit(all.size());
    if (by_size_) sizes_ = std::countr_zero(groups);
  }

  SumSchedule::Batch add(const std::vector<LaneSum>& arriving) {
    SumSchedule::Batch batch;
    for (size_t i = 0; i < arriving.size(); ++i) batch.buffers.push_back(take());
    for (size_t i = 0; i < arriving.size(); ++i) {
      waiting_.push_back({arriving[i], batch.buffers[i]});
      if (ends_pass(arriving[i].end())) join(batch.passes);
    }
    return batch;
  }

  const std::vector<LaneSum>& final() const { return final_; }
  int buffers() const { return static_cast<int>(used_.size()); }

 private:
  struct Waiting {
    LaneSum sum;
    int buffer;
  };

  bool ends_pass(int end) const {
    return end % group_ == 0 ||
           std::ranges::any_of(final_, [&](const LaneSum& sum) { return sum.end() == end; });
  }
  // The first free buffer, of those for arriving sums.
  int take() {
    int buffer = sizes_;
    while (buffer < buffers() && used_[static_cast<size_t>(buffer)]) ++buffer;
    use(buffer, true);
    return buffer;
  }
  void use(int buffer, bool used) {
    const auto at = static_cast<size_t>(buffer);
    if (at >= used_.size()) used_.resize(at + 1);
    used_[at] = used;
  }
  // For the sum that takes this position among those that wait; its terms' buffers are free.
  int place_of(const LaneSum& sum) const {
    if (by_size_ && sum != final_.front())
      return sizes_ - 1 - std::countr_zero(static_cast<unsigned>(sum.count / group_));
    return static_cast<int>(std::ranges::find(used_, false) - used_.begin());
  }
  // Adds the sums that wait, as far as the tree goes.
  void join(std::vector<SumSchedule::Pass>& passes) {
    std::vector<LaneSum> terms;
    for (const Waiting& waiting : waiting_) terms.push_back(waiting.sum);
    const bool last = terms.back().end() == final_.back().end();
    std::vector<Waiting> joined_sums;
    for (JoinedTerms& joined : join_terms(terms, lanes_)) {
      const auto of_term = [&](int i) { return waiting_[static_cast<size_t>(joined.first + i)]; };
      const int first = of_term(0).buffer, position = static_cast<int>(joined_sums.size());
      if (joined.count() == 1 && (!last || first == position)) {
        joined_sums.push_back(of_term(0));
        continue;
      }
      SumSchedule::Pass pass;
      for (int i = 0; i < joined.count(); ++i) {
        pass.terms.push_back(of_term(i).sum);
        pass.buffers.push_back(of_term(i).buffer);
        use(of_term(i).buffer, false);
      }
      pass.balanced = joined.is_balanced();
      pass.joins = std::move(joined.joins);
      pass.sum = joined.sum;
      pass.into = place_of(joined.sum);
      use(pass.into, true);
      joined_sums.push_back({pass.sum, pass.into});
      passes.push_back(std::move(pass));
    }
    waiting_ = std::move(joined_sums);
  }

  int lanes_;
  std::vector<LaneSum> final_;  // what is left in the end
  int group_ = 1;               // lanes that are added together
  bool by_size_ = false;        // each size of a sum has a buffer of its own,
  int sizes_ = 0;               // before those of arriving sums
  std::vector<Waiting> waiting_;
  std::vector<bool> used_;  // by buffer
};

}  // namespace

SumSchedule::SumSchedule(std::span<const std::vector<LaneSum>> batches, int lanes, int width) {
  Scheduler scheduler(batches, lanes, width);
  for (const std::vector<LaneSum>& arriving : batches) batches_.push_back(scheduler.add(arriving));
  sums_ = scheduler.final();
  buffers_ = std::max(1, scheduler.buffers());
}

}  // namespace lockstep::collectives
