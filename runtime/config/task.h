#pragma once
// What a model predicts, for its evaluation, and which metrics apply to it.

#include "runtime/config/model_traits.h"

namespace lockstep::config {

// Whether the model predicts classes, each of them or of tokens, or their probabilities.
inline bool predicts_classes(const ModelTraits& model) {
  switch (model.scored_kind()) {
    case TargetKind::kClass: return !model.diffusion;
    case TargetKind::kDistribution:
    case TargetKind::kTokenClasses: return true;
    case TargetKind::kNone:
    case TargetKind::kYesNo:
    case TargetKind::kValues:
    case TargetKind::kPixelClasses:
    case TargetKind::kTokens:
    case TargetKind::kTranscript:
    case TargetKind::kSimilarity:
    case TargetKind::kPreference:
    case TargetKind::kNamed: return false;
  }
  return false;
}

// Whether the model predicts classes, yes or no, or values: not tokens, images or nothing.
inline bool predicts_classes_or_values(const ModelTraits& model) {
  const TargetKind kind = model.scored_kind();
  return predicts_classes(model) || kind == TargetKind::kYesNo || kind == TargetKind::kValues;
}

// Whether evaluations of the model have the metric. If the number of outputs comes from the data:
// whether they may have it.
inline bool has_metric(const ModelTraits& model, EvalConfig::Metric metric) {
  using Metric = EvalConfig::Metric;
  const bool classes = predicts_classes(model);
  const bool yes_no = model.scored_kind() == TargetKind::kYesNo;
  const bool pairs = model.scored_kind() == TargetKind::kSimilarity;
  switch (metric) {
    case Metric::kLoss: return true;
    case Metric::kAccuracy: return model.has_accuracy();
    case Metric::kF1:
    case Metric::kAuc:
    case Metric::kAveragePrecision: return classes || yes_no;
    // Several yes-or-no answers have no single one.
    case Metric::kMatthews: return classes || (yes_no && model.outputs <= 1);
    case Metric::kMeanAbsoluteError:
    case Metric::kRSquared: return model.scored_kind() == TargetKind::kValues;
    case Metric::kPearson:
    case Metric::kSpearman: return model.scored_kind() == TargetKind::kValues || pairs;
    case Metric::kMeanIou: return model.scored_kind() == TargetKind::kPixelClasses;
    case Metric::kWordErrorRate:
    case Metric::kCharacterErrorRate: return model.scored_kind() == TargetKind::kTranscript;
    case Metric::kRecallAt1:
    case Metric::kRecallAt5:
    case Metric::kRecallAt10: return pairs;
  }
  return false;
}

inline bool smaller_is_better(EvalConfig::Metric metric) {
  using Metric = EvalConfig::Metric;
  return metric == Metric::kLoss || metric == Metric::kMeanAbsoluteError ||
         metric == Metric::kWordErrorRate || metric == Metric::kCharacterErrorRate;
}

}  // namespace lockstep::config
