#pragma once
// The report of an evaluation, as text and as JSON.

#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/config/model_traits.h"
#include "runtime/metrics/task_report.h"

namespace lockstep::launcher {

// Throws ConfigError if --report is given for a model that predicts neither classes nor values.
void check_report(bool report, const config::ModelTraits& model);

// For classes: precision, recall, F1 and support of each, their means, and the confusion matrix or,
// of more than 20 classes, the pairs that are confused most often. Of values: the errors of each
// column. `class_names`: by class number, or empty.
std::string to_text(const metrics::TaskReport& report, const std::vector<std::string>& class_names);

// The same, with all pairs of classes that occur.
Json to_json(const metrics::TaskReport& report, const std::vector<std::string>& class_names);

}  // namespace lockstep::launcher
