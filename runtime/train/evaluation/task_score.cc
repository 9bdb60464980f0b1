#include "runtime/train/evaluation/task_score.h"

#include "runtime/base/error.h"
#include "runtime/metrics/ranked_scores.h"

namespace lockstep::train {

bool compares_ranks(EvalConfig::Metric metric) {
  return metric == EvalConfig::Metric::kAuc || metric == EvalConfig::Metric::kAveragePrecision;
}

int64_t ranked_columns(const ScoreInput& input, int64_t columns) {
  const bool keeps =
      metrics::RankedScores::worth_keeping(input.rows, columns, compares_ranks(input.best));
  return keeps ? columns : 0;
}

std::unique_ptr<TaskScore> make_score(const ScoreInput& input) {
  using Kind = config::TargetKind;
  switch (input.model.scored_kind()) {
    case Kind::kClass: return input.model.diffusion ? nullptr : class_score(input);
    case Kind::kTokenClasses:
    case Kind::kDistribution: return class_score(input);
    case Kind::kYesNo: return input.columns > 1 ? label_score(input) : class_score(input);
    case Kind::kValues: return value_score(input);
    case Kind::kPixelClasses: return pixel_score(input);
    case Kind::kTranscript: return transcript_score(input);
    case Kind::kSimilarity: return pair_score(input);
    case Kind::kNone:
    case Kind::kTokens:  // perplexity
    case Kind::kPreference:
    case Kind::kNamed: return nullptr;
  }
  LOCKSTEP_CHECK(false);
}

}  // namespace lockstep::train
