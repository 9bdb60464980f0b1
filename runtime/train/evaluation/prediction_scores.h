#pragma once
// The metrics of predictions that were kept.

#include <optional>
#include <span>

#include "runtime/config/model_traits.h"
#include "runtime/metrics/task_report.h"
#include "runtime/train/evaluation/evaluator.h"
#include "runtime/train/evaluation/predictor.h"

namespace lockstep::train {

struct PredictionScores {
  Evaluation evaluation;  // as Evaluator has it, except for rounding; samples: rows with a target
  metrics::TaskReport report;
};

// Rows without a target do not count; null if no row has one, or if the model predicts neither
// classes nor values. `class_weights`: those of the loss, or empty. `target_std` (columns, or
// empty): values are divided by it for the loss.
std::optional<PredictionScores> score_predictions(const config::ModelTraits& model,
                                                  std::span<const float> class_weights,
                                                  std::span<const double> target_std,
                                                  const Predictions& predictions);

}  // namespace lockstep::train
