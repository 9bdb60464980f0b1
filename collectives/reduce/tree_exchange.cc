#include "collectives/reduce/tree_exchange.h"

#include <utility>

#include "runtime/base/error.h"

namespace lockstep::collectives {
namespace {

std::optional<ErrorFeedbackLayout> feedback_of(const GradientExchangeSetup& setup,
                                               const TreeExchange::Options& options) {
  if (options.wire.residuals == nullptr) return std::nullopt;
  LOCKSTEP_CHECK(options.wire.type == DType::kBF16 && setup.sums.data == nullptr);
  return ErrorFeedbackLayout(setup.shares,
                             setup.topology,
                             setup.communicators.control.rank(),
                             setup.gradients.buckets.back().end);
}

}  // namespace

TreeExchange::TreeExchange(GradientExchangeSetup setup, const Options& options)
    : LevelExchange(setup, options.staging, options.wire),
      levels_(exchange_levels(setup.topology,
                              rank_,
                              shares_.lanes,
                              [&](int rank) {
                                const LocalLanes lanes = shares_.of(rank);
                                return LaneSum{lanes.first, lanes.count};
                              })),
      feedback_(feedback_of(setup, options)),
      wire_(options.wire),
      replicated_sums_(options.replicated_sums),
      lane_sums_(math_, gradients_, shares_, rank_, wire_, feedback_ ? &*feedback_ : nullptr) {
  LOCKSTEP_CHECK(!replicated_sums_ || (node_ != nullptr && levels_.size() == 1 &&
                                       sums().data == gradients_.data && !sums().packed));
  LOCKSTEP_CHECK(sums().data == gradients_.data || ranks() > 1);
  if (replicated_sums_) copies_.reserve(static_cast<size_t>(ranks()));
}

void TreeExchange::bucket_ready(int bucket) {
  if (!lane_sums_.add(bucket, lane_)) return;
  levels_.empty() ? own_part_summed(bucket) : start_exchange(bucket, 0, levels_);
}

float* TreeExchange::place_of(int bucket, int /*turn*/, size_t /*sum*/) { return own_.at(bucket); }

void TreeExchange::complete(
    TreeSumTerms& terms, int bucket, size_t level, size_t sum, const Range& mine) {
  if (feedback_ && gradients_.has_gradients(bucket) && terms.count > 1)
    terms.residuals =
        feedback_->of_level(wire_.residuals, level, sum, gradients_.range(bucket).begin);
  if (!replicated_sums_) return;
  copies_.clear();
  for (int i = 0; i < node_->count(); ++i) {
    if (i != node_->index())
      copies_.push_back(
          gradients_.at(reinterpret_cast<float*>(node_->piece(i)), bucket, mine.begin));
  }
  terms.copies = copies_.data();
  terms.copy_count = static_cast<int>(copies_.size());
}

void TreeExchange::summed(int bucket, int /*turn*/) { own_part_summed(bucket); }

// Sums that are written to the others are waited for once, after the last bucket.
bool TreeExchange::announces_reads(int bucket) const {
  if (replicated_sums_) return static_cast<size_t>(bucket) + 1 == gradients_.buckets.size();
  return LevelExchange::announces_reads(bucket);
}

void TreeExchange::reduce() {
  LevelExchange::reduce();
  if (replicated_sums_)  // the parts that other ranks sum
    waits_.wait(last_read_.back(), Wait::kExchange, static_cast<int>(last_read_.size()) - 1);
}

}  // namespace lockstep::collectives
