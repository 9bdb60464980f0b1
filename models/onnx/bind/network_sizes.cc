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
  if (computes_loss(scored_)) return 0;
  const int number = network_.outputs[outputs_of(opened_, scored_).front()];
  return onnx::output_count(scored_, inputs_.kind(), network_.values[static_cast<size_t>(number)]);
}

Extents NetworkSizes::class_extents() const {
  const int number = network_.outputs[outputs_of(opened_, scored_).front()];
  return positions_of(
      scored_, inputs_.kind(), network_.values[static_cast<size_t>(number)].extents);
}

int64_t NetworkSizes::features() const {
  int64_t count = 0;
  for (size_t index = 0; index < network_.inputs.size(); ++index) {
    const Extents& extents = network_.values[static_cast<size_t>(network_.inputs[index])].extents;
    if (inputs_.meanings()[index] == Meaning::kFeatures) count += elements(extents) / extents[0];
  }
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
  return predicts_tokens(config_) && !computes_loss(scored_) ? outputs()
                                                             : fewest_rows_of(Meaning::kTokens);
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

config::TranscriptTraits NetworkSizes::transcript() const {
  const auto extents_of = [&](int number) -> const Extents& {
    return network_.values[static_cast<size_t>(number)].extents;
  };
  const Extents &frames = extents_of(network_.inputs[0]),
                &outputs = extents_of(output_numbers().front());
  if (frames.size() != 3 || outputs.size() != 3) return {};  // check_outputs() refuses it
  return {.frames = frames[1],
          .features = frames[2],
          .output_frames = outputs[1],
          .blank = config_.ctc_blank};
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
  if (config_.diffusion) {
    io.classes = std::max<int64_t>(1, classes());
  } else if (is_transcript(config_)) {  // as many symbols as frames
    io.classes = outputs();
    io.target_columns = 2 + transcript().output_frames;
  } else {
    (has_labels(scored_) ? io.classes : io.target_columns) = outputs();
  }
  return io;
}

}  // namespace lockstep::onnx
