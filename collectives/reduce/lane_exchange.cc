#include "collectives/reduce/lane_exchange.h"

#include <utility>

#include "runtime/base/error.h"

namespace lockstep::collectives {

LaneExchange::LaneExchange(GradientExchangeSetup setup, const Options& options)
    : LevelExchange(setup, options.staging, WireRounding{options.wire}),
      schedule_(shares_.schedule(rank_)) {
  LOCKSTEP_CHECK(shares_.order == LaneOrder::kEachSummed && ranks() > 1);
  LOCKSTEP_CHECK(sums().packed);
  terms_.reserve(static_cast<size_t>(shares_.lanes));
  for (int turn = 0; turn < turns_; ++turn)
    levels_.push_back(exchange_levels(
        setup.topology, rank_, shares_.lanes, [&](int rank) { return shares_.turn(turn, rank); }));
}

void LaneExchange::bucket_ready(int bucket) {
  start_exchange(bucket, lane_, levels_[static_cast<size_t>(lane_)]);
}

float* LaneExchange::place_of(int bucket, int turn, size_t sum) {
  return own_.at(bucket, schedule_[static_cast<size_t>(turn)].buffers[sum]);
}

void LaneExchange::summed(int bucket, int turn) {
  const int64_t n = own_.part(bucket).size();
  for (const SumSchedule::Pass& pass : schedule_[static_cast<size_t>(turn)].passes) {
    terms_.clear();
    for (const int buffer : pass.buffers) terms_.push_back(own_.at(bucket, buffer));
    math_.tree_sum(
        terms_of(pass, terms_, wire_of(bucket), shares_.lanes), own_.at(bucket, pass.into), n);
  }
  if (turn + 1 == turns_) own_part_summed(bucket);
}

}  // namespace lockstep::collectives
