#include "collectives/reduce/lane_exchange.h"

#include <utility>

#include "runtime/base/error.h"

namespace lockstep::collectives {

LaneExchange::LaneExchange(GradientExchangeSetup setup, const Options& options)
    : LevelExchange(setup, options.staging, WireRounding{options.wire}),
      schedule_(shares_.schedule(rank_)) {
  LOCKSTEP_CHECK(shares_.order == LaneOrder::kEachSummed && ranks() > 1);
  LOCKSTEP_CHECK(sums().packed);
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
  for (const SumSchedule::Join& join : schedule_[static_cast<size_t>(turn)].joins) {
    float* const into = own_.at(bucket, join.into);
    const void* both[2] = {into, own_.at(bucket, join.from)};
    math_.tree_sum({.arrays = both,
                    .count = 2,
                    .wire = wire_of(bucket),
                    .round_sum = join.sum == LaneSum{0, shares_.lanes}},
                   into,
                   n);
  }
  if (turn + 1 == turns_) own_part_summed(bucket);
}

}  // namespace lockstep::collectives
