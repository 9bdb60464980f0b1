#include "collectives/reduce/compressed_exchange.h"

#include <utility>

#include "runtime/base/error.h"

namespace lockstep::collectives {

CompressedExchange::CompressedExchange(GradientExchangeSetup setup, CompressedAllReduce& compressed)
    : GradientExchange(std::move(setup)), compressed_(compressed) {
  LOCKSTEP_CHECK(gradients_.offsets.empty() && sums().data == gradients_.data);
  LOCKSTEP_CHECK(shares_.order != LaneOrder::kEachSummed && lanes_.count % shares_.unit == 0);
  const int groups = lanes_.count / shares_.unit;
  const LaneShares of_group = {.lanes = shares_.unit, .order = shares_.order};
  buffers_.assign(static_cast<size_t>(groups), gradients_);
  for (int group = 0; group < groups; ++group) {
    GradientBuffers& buffers = buffers_[static_cast<size_t>(group)];
    if (together()) buffers.data = gradients_.buffer(group * shares_.unit);
    group_sums_.emplace_back(math_, buffers, of_group, 0, WireRounding{}, nullptr);
  }
}

float* CompressedExchange::lane_gradients() {
  return group_sums_[group_of(lane_)].buffer_of(lane_ % shares_.unit);
}

void CompressedExchange::bucket_ready(int bucket) {
  const size_t group = group_of(lane_);
  if (!group_sums_[group].add(bucket, lane_ % shares_.unit)) return;
  const Range& range = gradients_.range(bucket);
  const float* const sum = gradients_.at(buffers_[group].data, bucket, range.begin);
  compressed_.add(static_cast<int>(group), range, sum);
}

void CompressedExchange::reduce() {
  GradientExchange::reduce();
  compressed_.finish(gradients_.data);
  for (int b = 0; b < static_cast<int>(gradients_.buckets.size()); ++b) own_part_summed(b);
}

}  // namespace lockstep::collectives
