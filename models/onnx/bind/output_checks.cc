#include "models/onnx/bind/output_checks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "models/onnx/bind/objective.h"
#include "models/onnx/bind/opened_file.h"
#include "models/onnx/bind/targets.h"
#include "models/onnx/bind/transcript_output.h"
#include "models/onnx/bind/vector_outputs.h"
#include "runtime/base/error.h"

namespace lockstep::onnx {
namespace {

using Task = OnnxConfig::Task;

// A loss is a number for each sample, or for each token or other part of a sample.
void check_loss(const OnnxConfig& config, const Value& loss, int64_t samples) {
  const Extents& extents = loss.extents;
  if (is_floating(loss.type) && (extents.size() == 1 || extents.size() == 2) &&
      extents[0] == samples)
    return;
  throw ConfigError(
      "model.onnx.output: \"{}\" of {} is {} with extents {} for {}; allowed with loss OUTPUT: "
      "float (N), (N, 1) or (N, T), a loss for each sample or token: export it with "
      "reduction='none', and its mean over all axes but the first",
      loss.name,
      config.file,
      name_of(loss.type),
      to_string(extents),
      samples == 1 ? "one sample" : fmt::format("{} samples", samples));
}

// Throws ConfigError if an output does not have the form that its loss, of `config`, takes. `field`
// names the output; `wanted`: how many classes or values it must have, -1: any number.
void check_output(const OnnxConfig& config,
                  const NetworkInputs& inputs,
                  const Network& network,
                  int64_t samples,
                  const char* field,
                  const Value& output,
                  int64_t wanted) {
  const bool of_texts =
      config.task == Task::kSequenceClasses || config.task == Task::kSequenceValues;
  const bool of_tokens = inputs.kind() == config::ModelInput::kTokens && !of_texts;
  Extents first = {samples};  // the leading extents, before the classes or values
  if (of_tokens) first.push_back(inputs.context());
  const bool tokens = inputs.kind() == config::ModelInput::kTokens;
  // The most axes of an output, if it has labels: as many as torch.nn.Conv3d's.
  const size_t most = tokens ? 0 : inputs.kind() == config::ModelInput::kImages ? 4 : 5;
  std::string form = of_tokens             ? "(N, T, O)"
                     : !has_labels(config) ? "(N, ...)"
                     : tokens              ? "(N, O)"
                     : most == 4           ? "(N, O), or (N, O, H, W) for classes of pixels"
                                 : "(N, O), or (N, O, L), (N, O, H, W) or (N, O, D, H, W) for "
                                   "classes of positions";
  if (tokens) form += fmt::format(" for model.onnx.task {}", lockstep::name_of(config.task));
  if (config.diffusion) {
    first = network.values[static_cast<size_t>(network.inputs[inputs.images_place()])].extents;
    form = to_string(first) + ", the extents of the images";
  }
  const Extents& extents = output.extents;
  const size_t rank = extents.size(), others = first.size();
  const bool good =
      is_floating(output.type) && rank >= others &&
      std::equal(first.begin(), first.end(), extents.begin()) &&
      (config.diffusion ? rank == others
       : has_labels(config)
           ? rank == others + 1 || (most == 4 ? rank == most : rank > others && rank <= most)
           : rank > others);
  if (good && (wanted < 0 || output_count(config, inputs.kind(), output) == wanted)) return;
  throw ConfigError("{}: \"{}\" of {} is {} with extents {} for {}; allowed: float {}{}{}",
                    field,
                    output.name,
                    config.file,
                    name_of(output.type),
                    to_string(extents),
                    samples == 1 ? "one sample" : fmt::format("{} samples", samples),
                    form,
                    wanted < 0 ? "" : ", with as many outputs as model.onnx.output",
                    network.outputs.size() > 1 ? "; the file has other outputs" : "");
}

}  // namespace

void check_outputs(const OnnxConfig& config,
                   const NetworkInputs& inputs,
                   const Network& network,
                   int64_t samples) {
  const std::vector<size_t> indices = outputs_of(*open_file(config), config);
  const auto output_at = [&](size_t place) -> const Value& {
    return network.values[static_cast<size_t>(network.outputs[indices[place]])];
  };
  const auto check = [&](const OnnxConfig& of, const char* field, size_t place, int64_t wanted) {
    check_output(of, inputs, network, samples, field, output_at(place), wanted);
  };
  if (is_transcript(config))
    return check_transcript_output(config, inputs, network, output_at(0), samples);
  if (compares_vectors(config)) {
    std::vector<const Value*> outputs;
    for (size_t place = 0; place < indices.size(); ++place) outputs.push_back(&output_at(place));
    return check_vector_outputs(config, outputs, samples);
  }
  if (computes_loss(config)) {
    check_loss(config, output_at(0), samples);
    const bool of_texts =
        config.task == Task::kSequenceClasses || config.task == Task::kSequenceValues;
    if (!config.predictions.empty() && inputs.kind() == config::ModelInput::kTokens && !of_texts)
      throw ConfigError(
          "model.onnx.predictions: allowed for a network that takes tokens: with model.onnx.task "
          "SEQUENCE_CLASSES or SEQUENCE_VALUES");
    if (!config.predictions.empty()) check(scored(config), "model.onnx.predictions.output", 1, -1);
    return;
  }
  check(config, "model.onnx.output", 0, -1);
  for (size_t head = 1; head < indices.size(); ++head) {
    const bool same_target = config.losses[head - 1].target.empty();
    if (!same_target && inputs.kind() == config::ModelInput::kTokens)
      throw ConfigError(
          "model.onnx.losses.target: allowed for networks of features or images only");
    check(of_head(config, head),
          "model.onnx.losses.output",
          head,
          same_target ? output_count(config, inputs.kind(), output_at(0)) : -1);
  }
}

void check_sizes_of_pixels(const OnnxConfig& config,
                           const NetworkInputs& inputs,
                           const Network& network,
                           const std::vector<int>& outputs) {
  if (inputs.kind() != config::ModelInput::kImages) return;
  for (const int number : outputs) {
    const Value& output = network.values[static_cast<size_t>(number)];
    if (positions_of(config, inputs.kind(), output.extents).empty()) continue;
    const Extents& images =
        network.values[static_cast<size_t>(network.inputs[inputs.images_place()])].extents;
    if (std::equal(images.begin() + 2, images.end(), output.extents.begin() + 2)) continue;
    throw ConfigError(
        "model.onnx.output: \"{}\" of {} has {} x {} pixels for images of {} x {} (width x "
        "height); allowed: the images' size, which is that of the masks, as from a last Resize "
        "node; for a class of the image: (N, O)",
        output.name,
        config.file,
        output.extents[3],
        output.extents[2],
        images[3],
        images[2]);
  }
}

}  // namespace lockstep::onnx
