#include "models/onnx/bind/network_sizes.h"

#include <algorithm>

#include "models/onnx/bind/objective.h"
#include "models/onnx/nodes/ids.h"
#include "runtime/base/error.h"
#include "runtime/config/limits.h"

namespace lockstep::onnx {

void NetworkSizes::require_tables() const {
  require_classes();
  require_vocabulary();
  require_positions();
}

void NetworkSizes::require_vocabulary() const {
  if (inputs_.kind() != config::ModelInput::kTokens || !predicts_tokens(config_)) return;
  const int64_t rows = fewest_rows_of(Meaning::kTokens);
  if (rows > 0 && rows < outputs())
    throw ConfigError("model.onnx.file: {} has {} outputs, but its table of tokens has {} rows",
                      config_.file,
                      outputs(),
                      rows);
}

void NetworkSizes::require_positions() const {
  if (inputs_.kind() != config::ModelInput::kTokens) return;
  const int64_t rows = fewest_rows_of(Meaning::kPositions);
  if (rows > 0 && rows < inputs_.context())
    config::refuse_value("model.onnx.context",
                         inputs_.context(),
                         "at most {}, the rows in the table of positions of {}",
                         rows,
                         config_.file);
}

void NetworkSizes::require_classes() const {
  if (!config_.diffusion || !inputs_.has(Meaning::kClasses)) return;
  const int64_t rows = fewest_rows_of(Meaning::kClasses);
  const int64_t classes = config_.diffusion->classes;
  if (classes == 0 && rows == 0)
    config::refuse_value("model.onnx.diffusion.classes",
                         classes,
                         "the number of classes, because {} has no table of classes",
                         config_.file);
  if (rows > 0 && rows < std::max<int64_t>(classes, 1) + inputs_.rows_for_none())
    config::refuse_value(
        classes > 0 ? "model.onnx.diffusion.classes" : "model.onnx.diffusion.label_dropout",
        classes > 0 ? static_cast<double>(classes)
                    : static_cast<double>(config_.diffusion->label_dropout),
        "a value for which the table of classes of {} has enough of its {} rows: one "
        "for each class and, with label_dropout, one more",
        config_.file,
        rows);
}

std::vector<int> NetworkSizes::output_numbers() const {
  std::vector<int> numbers;
  for (const size_t index : outputs_of(opened_, config_))
    numbers.push_back(network_.outputs[index]);
  return numbers;
}

int64_t NetworkSizes::outputs() const {
  const int number = output_numbers().front();
  return onnx::output_count(config_, network_.values[static_cast<size_t>(number)]);
}

int64_t NetworkSizes::features() const {
  int64_t count = 0;
  for (const int number : network_.inputs)
    count += elements(network_.values[static_cast<size_t>(number)].extents) /
             network_.values[static_cast<size_t>(number)].extents[0];
  return count;
}

int64_t NetworkSizes::classes() const {
  if (!inputs_.has(Meaning::kClasses)) return 0;
  if (config_.diffusion->classes > 0) return config_.diffusion->classes;
  return fewest_rows_of(Meaning::kClasses) - inputs_.rows_for_none();
}

int64_t NetworkSizes::fewest_rows_of(Meaning meaning) const {
  int64_t fewest = 0;
  for (size_t index = 0; index < network_.inputs.size(); ++index) {
    const int64_t rows = fewest_rows(network_, network_.inputs[index]);
    if (inputs_.meanings()[index] == meaning && rows > 0)
      fewest = fewest == 0 ? rows : std::min(fewest, rows);
  }
  return fewest;
}

int64_t NetworkSizes::vocabulary() const {
  return predicts_tokens(config_) ? outputs() : fewest_rows_of(Meaning::kTokens);
}

int64_t NetworkSizes::segments() const {
  constexpr int64_t kOfPairs = 2;
  const int64_t rows = fewest_rows_of(Meaning::kSegments);
  return rows > 0 ? rows : kOfPairs;
}

bool NetworkSizes::normalises_lanes() const {
  return config_.batch_norm == OnnxConfig::BatchNorm::kBatch &&
         std::ranges::any_of(network_.nodes, [](const Node& node) {
           return node.op == "BatchNormalization" && node.domain.empty();
         });
}

models::ModelIo NetworkSizes::io() const {
  models::ModelIo io;
  if (inputs_.kind() == config::ModelInput::kImages) {
    const int images = network_.inputs[inputs_.images_place()];
    const Extents& extents = network_.values[static_cast<size_t>(images)].extents;
    io.channels = extents[1];
    io.height = extents[2];
    io.width = extents[3];
    io.mean.assign(static_cast<size_t>(io.channels), 0);
    io.std.assign(static_cast<size_t>(io.channels), 1);
  } else if (inputs_.kind() == config::ModelInput::kFeatures) {
    io.features = features();
  } else if (!predicts_tokens(config_)) {
    io.vocabulary = vocabulary();
  }
  if (config_.diffusion)
    io.classes = std::max<int64_t>(1, classes());
  else
    (has_labels(config_) ? io.classes : io.target_columns) = outputs();
  return io;
}

}  // namespace lockstep::onnx
