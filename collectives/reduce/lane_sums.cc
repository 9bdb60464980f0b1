#include "collectives/reduce/lane_sums.h"

namespace lockstep::collectives {

LaneSums::LaneSums(SliceMath& math,
                   const GradientBuffers& gradients,
                   const LaneShares& shares,
                   int rank,
                   const WireRounding& wire,
                   const ErrorFeedbackLayout* feedback)
    : math_(math),
      gradients_(gradients),
      shares_(shares),
      lanes_(shares.of(rank)),
      wire_(wire),
      feedback_(feedback),
      schedule_(shares.schedule(rank)) {}

float* LaneSums::buffer_of(int local_lane) const {
  const auto i = static_cast<size_t>(local_lane), pass = lanes_at_once();
  return gradients_.buffer(schedule_[i / pass].buffers[i % pass]);
}

bool LaneSums::add(int bucket, int local_lane) {
  if (keeps_residuals(bucket)) round_alone(bucket, local_lane);
  const bool last = local_lane + 1 == lanes_.count;
  const auto done = static_cast<size_t>(local_lane) + 1, pass = lanes_at_once();
  if (!last && done % pass != 0) return false;
  for (const auto& join : schedule_[(done - 1) / pass].joins) this->join(bucket, join);
  if (!last) return false;
  // Of lanes that run at the same time, each had a buffer: the sums may not be in the first ones.
  const std::vector<int>& from = schedule_.buffers_of_sums();
  for (int i = 0; i < static_cast<int>(from.size()); ++i) {
    if (from[static_cast<size_t>(i)] == i) continue;
    const void* const sum = at(bucket, from[static_cast<size_t>(i)]);
    math_.tree_sum({.arrays = &sum}, at(bucket, i), gradients_.range(bucket).size());
  }
  return true;
}

// Rounds a lane's gradients if a group has only this lane.
void LaneSums::round_alone(int bucket, int local_lane) {
  const Range& range = gradients_.range(bucket);
  const ErrorFeedbackResiduals residuals =
      feedback_->of_lanes(wire_.residuals, {lanes_[local_lane], 1}, range.begin);
  if (!residuals) return;
  float* const gradients = gradients_.at(buffer_of(local_lane), bucket, range.begin);
  const void* const only = gradients;
  math_.tree_sum(
      {.arrays = &only, .wire = wire_.type, .residuals = residuals}, gradients, range.size());
}

void LaneSums::join(int bucket, const SumSchedule::Join& join) {
  const Range& range = gradients_.range(bucket);
  float* const into = at(bucket, join.into);
  const void* both[2] = {into, at(bucket, join.from)};
  TreeSumTerms terms = {.arrays = both, .count = 2, .wire = wire_.of(gradients_, bucket)};
  terms.round_sum = join.sum == LaneSum{0, shares_.lanes};
  if (keeps_residuals(bucket)) {
    terms.residuals = feedback_->of_lanes(wire_.residuals, join.sum, range.begin);
    if (!terms.residuals) terms.wire = DType::kF32;  // within a group
  }
  math_.tree_sum(terms, into, range.size());
}

}  // namespace lockstep::collectives
