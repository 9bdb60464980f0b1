#pragma once
// Adds up the lanes of one rank, bucket by bucket, as far as the lanes' tree goes.

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/exchange/slice_math.h"
#include "collectives/layout/error_feedback_layout.h"
#include "collectives/layout/tree_sum_terms.h"
#include "collectives/reduce/gradient_buffers.h"

namespace lockstep::collectives {

// The type to which gradients are rounded before they are added, and to which their sum is. Running
// statistics are not rounded. See tree_sum_terms.h.
struct WireRounding {
  DType type = DType::kF32;
  // For kBF16: ErrorFeedbackLayout::elements() residuals, borrowed; groups are of LaneShares::unit
  // lanes. Null: no error feedback.
  uint16_t* residuals = nullptr;

  DType of(const GradientBuffers& gradients, int bucket) const {
    return gradients.has_gradients(bucket) ? type : DType::kF32;
  }
};

// The terms of a pass, whose gradients are `arrays`, borrowed, among `lanes` lanes.
TreeSumTerms terms_of(const SumSchedule::Pass& pass,
                      std::span<const void* const> arrays,
                      DType wire,
                      int lanes);

class LaneSums {
 public:
  // Lanes in their order, not kEachSummed. `feedback`: the layout of the residuals; null without
  // them. All are borrowed.
  LaneSums(SliceMath& math,
           const GradientBuffers& gradients,
           const LaneShares& shares,
           int rank,
           const WireRounding& wire,
           const ErrorFeedbackLayout* feedback);

  // The buffer of the gradients of a lane, by its number on this rank.
  float* buffer_of(int local_lane) const;
  // The lane has written the bucket: adds it to those before it. True once all lanes of the rank
  // are added: then the buffers 0, 1, ... hold sums(), in the order of their lanes.
  bool add(int bucket, int local_lane);
  const std::vector<LaneSum>& sums() const { return schedule_.sums(); }

 private:
  // Lanes that run at the same time.
  size_t lanes_together() const {
    return static_cast<size_t>(shares_.order == LaneOrder::kTogether ? lanes_.count
                                                                     : shares_.lanes_per_pass);
  }
  void round_alone(int bucket, int local_lane);
  void add_up_in_pairs(int bucket, const SumSchedule::Pass& pass);
  float* at(int bucket, int buffer) const {
    return gradients_.at(gradients_.buffer(buffer), bucket, gradients_.range(bucket).begin);
  }
  bool keeps_residuals(int bucket) const {
    return feedback_ != nullptr && gradients_.has_gradients(bucket);
  }

  SliceMath& math_;
  const GradientBuffers& gradients_;
  LaneShares shares_;
  LocalLanes lanes_;
  WireRounding wire_;
  const ErrorFeedbackLayout* feedback_;
  SumSchedule schedule_;
  std::vector<const void*> arrays_;  // of a pass
};

}  // namespace lockstep::collectives
