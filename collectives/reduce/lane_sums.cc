#include "collectives/reduce/lane_sums.h"

#include <array>

namespace lockstep::collectives {

TreeSumTerms terms_of(const SumSchedule::Pass& pass,
                      std::span<const void* const> arrays,
                      DType wire,
                      int lanes) {
  return {.arrays = arrays.data(),
          .count = static_cast<int>(arrays.size()),
          .wire = wire,
          .round_sum = pass.sum == LaneSum{0, lanes},
          .joins = pass.balanced ? nullptr : pass.joins.data()};
}

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
      schedule_(shares.schedule(rank)) {
  arrays_.reserve(static_cast<size_t>(lanes_.count));
}

float* LaneSums::buffer_of(int local_lane) const {
  const auto i = static_cast<size_t>(local_lane), together = lanes_together();
  return gradients_.buffer(schedule_[i / together].buffers[i % together]);
}

bool LaneSums::add(int bucket, int local_lane) {
  if (keeps_residuals(bucket)) round_alone(bucket, local_lane);
  const bool last = local_lane + 1 == lanes_.count;
  const auto done = static_cast<size_t>(local_lane) + 1, together = lanes_together();
  if (!last && done % together != 0) return false;
  for (const SumSchedule::Pass& pass : schedule_[(done - 1) / together].passes) {
    if (keeps_residuals(bucket)) {
      add_up_in_pairs(bucket, pass);
      continue;
    }
    arrays_.clear();
    for (const int buffer : pass.buffers) arrays_.push_back(at(bucket, buffer));
    math_.tree_sum(terms_of(pass, arrays_, wire_.of(gradients_, bucket), shares_.lanes),
                   at(bucket, pass.into),
                   gradients_.range(bucket).size());
  }
  return last;
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

// Only those sums of a pass that lie above the groups are rounded, and have residuals.
void LaneSums::add_up_in_pairs(int bucket, const SumSchedule::Pass& pass) {
  const Range& range = gradients_.range(bucket);
  struct Open {
    LaneSum sum;
    int buffer;
  };
  std::array<Open, kMaxOpenSums> open;
  size_t count = 0;
  for (size_t i = 0; i < pass.terms.size(); ++i) {
    open[count++] = {pass.terms[i], pass.buffers[i]};
    for (int joins = pass.joins[i]; joins > 0; --joins) {
      const Open& right = open[--count];
      Open& left = open[count - 1];
      left.sum.count += right.sum.count;
      const void* both[2] = {at(bucket, left.buffer), at(bucket, right.buffer)};
      const ErrorFeedbackResiduals residuals =
          feedback_->of_lanes(wire_.residuals, left.sum, range.begin);
      math_.tree_sum({.arrays = both,
                      .count = 2,
                      .wire = residuals ? wire_.type : DType::kF32,  // not within a group
                      .round_sum = left.sum == LaneSum{0, shares_.lanes},
                      .residuals = residuals},
                     at(bucket, left.buffer),
                     range.size());
    }
  }
  const void* const sum = at(bucket, open.front().buffer);
  if (open.front().buffer != pass.into)
    math_.tree_sum({.arrays = &sum}, at(bucket, pass.into), range.size());
}

}  // namespace lockstep::collectives
