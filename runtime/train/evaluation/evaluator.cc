#include "runtime/train/evaluation/evaluator.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

Evaluator::Evaluator(const RunParts& parts,
                     const RunMemory& memory,
                     Reducer& reducer,
                     BucketAllGather* gather)
    : model_(parts.model),
      reducer_(reducer),
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
  Evaluation evaluation = {totals.loss_sum / count, pass_.samples(), totals.correct_count / count};
  const bool of_classes = model_.loss == Loss::kSoftmaxCrossEntropy;
  if (of_classes && model_.outputs > 5) evaluation.top5 = totals.top5_count / count;
  if (of_classes && model_.input == ModelInput::kTokens)
    evaluation.perplexity = std::exp(evaluation.loss);
  return evaluation;
}

}  // namespace lockstep
