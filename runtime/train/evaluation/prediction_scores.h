#pragma once
// The metrics of predictions that were kept.

#include <optional>
#include <span>
#include <string>

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
// classes nor values nor transcripts. `train`: the weights of the loss. `target_std` (columns, or
// empty): values are divided by it for the loss. class_names: of transcripts, their symbols.
std::optional<PredictionScores> score_predictions(const config::ModelTraits& model,
                                                  const TrainConfig& train,
                                                  std::span<const double> target_std,
                                                  const Predictions& predictions,
                                                  std::span<const std::string> class_names = {});

}  // namespace lockstep::train
