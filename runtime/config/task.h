#pragma once
// What a model predicts, for its evaluation, and which metrics apply to it.

#include "runtime/config/model_traits.h"

namespace lockstep::config {

enum class Task {
  kOther,    // language modelling, which has its perplexity, or nothing
  kClasses,  // one of several, by softmax
  kYesNo,    // one output, by sigmoid
  kValues
};

// Whether the model predicts classes or values: not tokens, images or nothing.
inline bool predicts_classes_or_values(const ModelTraits& model) {
  const bool of_text = model.text_task == TextTask::kSequenceClass ||
                       model.text_task == TextTask::kSequenceValues ||
                       model.text_task == TextTask::kTokenClasses;
  return !model.diffusion && (model.input != ModelInput::kTokens || of_text);
}

inline Task task_of(const ModelTraits& model) {
  if (!predicts_classes_or_values(model)) return Task::kOther;
  if (model.loss == Loss::kMeanSquaredError) return Task::kValues;
  if (model.loss == Loss::kSoftmaxCrossEntropy) return Task::kClasses;
  // Several yes-or-no answers have no single F1.
  return model.outputs <= 1 ? Task::kYesNo : Task::kOther;
}

// Whether evaluations of the model have the metric. If the number of outputs comes from the data:
// whether they may have it.
inline bool has_metric(const ModelTraits& model, EvalConfig::Metric metric) {
  using Metric = EvalConfig::Metric;
  const Task task = task_of(model);
  const bool classes = task == Task::kClasses || task == Task::kYesNo;
  switch (metric) {
    case Metric::kLoss: return true;
    case Metric::kAccuracy: return model.has_accuracy();
    case Metric::kF1:
    case Metric::kMatthews: return classes;
    case Metric::kAuc:
      return task == Task::kYesNo ||
             (task == Task::kClasses && (model.outputs == 0 || model.outputs == 2));
    case Metric::kMeanAbsoluteError:
    case Metric::kRSquared:
    case Metric::kPearson:
    case Metric::kSpearman: return task == Task::kValues;
  }
  return false;
}

inline bool smaller_is_better(EvalConfig::Metric metric) {
  return metric == EvalConfig::Metric::kLoss || metric == EvalConfig::Metric::kMeanAbsoluteError;
}

}  // namespace lockstep::config
