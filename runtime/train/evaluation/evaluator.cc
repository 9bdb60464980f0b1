#include "runtime/train/evaluation/evaluator.h"

#include <algorithm>

namespace lockstep {

Evaluator::Evaluator(const RunParts& parts,
                     const RunMemory& memory,
                     Reducer& reducer,
                     BucketAllGather* gather)
    : reducer_(reducer),
      pass_(parts, memory, gather),
      sums_(static_cast<size_t>(parts.local_lanes())) {}

Evaluation Evaluator::run() {
  std::fill(sums_.begin(), sums_.end(), LaneStatistics{});
  pass_.run({.lane_done = [this](size_t lane, int64_t) {
    const auto* statistics = reinterpret_cast<const double*>(pass_.result());
    for (int k = 0; k < kStatisticCount; ++k) sums_[lane].values[k] += statistics[k];
  }});
  const StepTotals totals = reducer_.sum_statistics(sums_);
  const double count = std::max(totals.valid_count, 1.0);
  return {totals.loss_sum / count, pass_.samples(), totals.correct_count / count};
}

}  // namespace lockstep
