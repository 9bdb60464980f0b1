#include "models/onnx/bind/network_inputs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/config/limits.h"

namespace lockstep::onnx {
namespace {

const std::map<std::string, Meaning> kKnownNames = {{"input_ids", Meaning::kTokens},
                                                    {"attention_mask", Meaning::kMask},
                                                    {"token_type_ids", Meaning::kSegments},
                                                    {"position_ids", Meaning::kPositions}};

// The names of inputs of denoisers.
const std::map<std::string, Meaning> kKnownOfDenoisers = {{"timestep", Meaning::kTimes},
                                                          {"timesteps", Meaning::kTimes},
                                                          {"t", Meaning::kTimes},
                                                          {"class_labels", Meaning::kClasses},
                                                          {"labels", Meaning::kClasses},
                                                          {"y", Meaning::kClasses}};

bool is_id(ElementType type) { return type == ElementType::kInt64 || type == ElementType::kInt32; }

bool has_open_axis(const FileValue& input, size_t axis) {
  return axis >= input.extents.size() || input.extents[axis].extent < 0;
}

const char* word_of(Meaning meaning) {
  switch (meaning) {
    case Meaning::kTokens: return "TOKENS";
    case Meaning::kMask: return "MASK";
    case Meaning::kSegments: return "SEGMENTS";
    case Meaning::kPositions: return "POSITIONS";
    case Meaning::kFeatures: return "FEATURES";
    case Meaning::kImages: return "IMAGES";
    case Meaning::kTimes: return "TIMES";
    case Meaning::kClasses: return "CLASSES";
    case Meaning::kTarget: return "TARGET";
  }
  return "";
}

// The types and extents that an input with this meaning may have, in words.
const char* form_of(Meaning meaning) {
  switch (meaning) {
    case Meaning::kMask: return "int64, int32, bool or float (N, T)";
    case Meaning::kFeatures: return "float, int64 or int32 (N, ...)";
    case Meaning::kImages: return "float (N, C, H, W)";
    case Meaning::kTimes: return "float, int64 or int32 (N)";
    case Meaning::kClasses: return "int64 or int32 (N)";
    case Meaning::kTarget: return "float, int64, int32 or bool (N, ...)";
    default: return "int64 or int32 (N, T)";
  }
}

}  // namespace

bool is_of_tokens(Meaning meaning) {
  return meaning == Meaning::kTokens || meaning == Meaning::kMask ||
         meaning == Meaning::kSegments || meaning == Meaning::kPositions;
}

NetworkInputs::NetworkInputs(const OpenedFile& opened, const OnnxConfig& config)
    : opened_(opened), config_(config) {
  const size_t count = opened.file.inputs.size();
  std::set<std::string> names;
  for (size_t index = 0; index < count; ++index) names.insert(value(index).name);
  std::set<std::string> seen;
  for (const OnnxInput& given : config.inputs) {
    if (names.count(given.name) == 0)
      config::refuse_value("model.onnx.inputs.name",
                           in_quotes(given.name),
                           "an input of {}: {}",
                           config.file,
                           fmt::join(names, ", "));
    if (!seen.insert(given.name).second)
      config::refuse_value("model.onnx.inputs.name", in_quotes(given.name), "each name once");
  }
  require_axes();
  std::vector<size_t> unnamed;
  for (size_t index = 0; index < count; ++index) {
    const std::optional<Meaning> meaning = meaning_of(index);
    meanings_.push_back(meaning.value_or(Meaning::kFeatures));
    if (meaning)
      require_form(index);
    else
      unnamed.push_back(index);
  }
  if (!unnamed.empty()) refuse_unnamed(unnamed);
  require_together();
  context_ = find_context();
}

// Checks model.onnx.axes. The first axis of an input is that of the samples, whose extent is the
// batch of a lane.
void NetworkInputs::require_axes() const {
  std::set<std::string> seen, of_samples;
  for (size_t index = 0; index < opened_.file.inputs.size(); ++index) {
    of_samples.insert(value(index).name + ".0");
    if (!value(index).extents.empty()) of_samples.insert(value(index).extents[0].name);
  }
  for (const OnnxAxis& given : config_.axes) {
    if (!seen.insert(given.name).second)
      config::refuse_value("model.onnx.axes.name", in_quotes(given.name), "each name once");
    if (of_samples.count(given.name) > 0)
      config::refuse_value(
          "model.onnx.axes.name",
          in_quotes(given.name),
          "axes other than that of the samples, whose extent is the batch of a lane");
  }
}

void NetworkInputs::require_together() const {
  const auto count = [&](Meaning meaning) { return std::ranges::count(meanings_, meaning); };
  if (config_.diffusion) {
    if (count(Meaning::kImages) == 1 && count(Meaning::kTimes) == 1 &&
        count(Meaning::kClasses) == static_cast<int64_t>(meanings_.size()) - 2 &&
        count(Meaning::kClasses) < 2)
      return;
    throw ConfigError(
        "model.onnx.inputs: {} takes {}; allowed with model.onnx.diffusion: IMAGES and TIMES, "
        "optionally with CLASSES",
        config_.file,
        words());
  }
  const int64_t targets = count(Meaning::kTarget);
  if (targets > 0 && config_.loss != Loss::kOutput && config_.loss != Loss::kContrastive)
    throw ConfigError(
        "model.onnx.inputs: {} takes {}; allowed for TARGET: with model.onnx.loss OUTPUT or "
        "CONTRASTIVE",
        config_.file,
        words());
  const auto inputs = static_cast<int64_t>(meanings_.size()) - targets;
  const bool of_tokens =
      count(Meaning::kTokens) > 0 && std::ranges::count_if(meanings_, is_of_tokens) == inputs;
  if (of_tokens && targets > 1)
    throw ConfigError(
        "model.onnx.inputs: {} takes {} targets; allowed with TOKENS: one, the data's",
        config_.file,
        targets);
  const bool of_features = inputs > 0 && count(Meaning::kFeatures) == inputs;
  if (of_tokens || of_features || (inputs == 1 && count(Meaning::kImages) == 1)) return;
  throw ConfigError(
      "model.onnx.inputs: {} takes {}; allowed: FEATURES for all inputs; one IMAGES; TOKENS, "
      "optionally with MASK, SEGMENTS and POSITIONS; or the inputs of model.onnx.diffusion; and "
      "TARGET with model.onnx.loss OUTPUT or CONTRASTIVE",
      config_.file,
      words());
}

std::string NetworkInputs::words() const {
  std::vector<std::string> words;
  for (const Meaning meaning : meanings_) words.push_back(word_of(meaning));
  return words.empty() ? "nothing" : fmt::format("{}", fmt::join(words, ", "));
}

config::ModelInput NetworkInputs::kind() const {
  if (has(Meaning::kImages)) return config::ModelInput::kImages;
  return has(Meaning::kFeatures) ? config::ModelInput::kFeatures : config::ModelInput::kTokens;
}

bool NetworkInputs::has(Meaning meaning) const {
  return std::ranges::count(meanings_, meaning) > 0;
}

int64_t NetworkInputs::rows_for_none() const {
  return config_.diffusion && config_.diffusion->label_dropout > 0 ? 1 : 0;
}

size_t NetworkInputs::images_place() const {
  return static_cast<size_t>(std::ranges::find(meanings_, Meaning::kImages) - meanings_.begin());
}

const FileValue& NetworkInputs::value(size_t index) const {
  return opened_.file.values[static_cast<size_t>(opened_.file.inputs[index])];
}

std::optional<Meaning> NetworkInputs::meaning_of(size_t index) const {
  const FileValue& input = value(index);
  for (const OnnxInput& given : config_.inputs)
    if (given.name == input.name) return given.is;
  const auto known = kKnownNames.find(input.name);
  if (known != kKnownNames.end()) return known->second;
  const size_t rank = input.extents.size();
  if (config_.diffusion) {
    const auto seen = kKnownOfDenoisers.find(input.name);
    if (seen != kKnownOfDenoisers.end()) return seen->second;
    if (is_floating(input.type) && rank == 4) return Meaning::kImages;
  } else if (const auto targets =
                 std::ranges::count(config_.inputs, Meaning::kTarget, &OnnxInput::is);
             opened_.file.inputs.size() == 1 + static_cast<size_t>(targets)) {
    if (is_id(input.type) && rank == 2) return Meaning::kTokens;
    if (is_floating(input.type) || !input.typed)
      return rank == 4 ? Meaning::kImages : Meaning::kFeatures;
  }
  return std::nullopt;
}

void NetworkInputs::refuse_unnamed(const std::vector<size_t>& indexes) const {
  std::string inputs;
  for (const size_t index : indexes) {
    const FileValue& input = value(index);
    inputs += fmt::format("{}\"{}\" ({} with {} axes)",
                          inputs.empty() ? "" : ", ",
                          input.name,
                          input.typed ? name_of(input.type) : "of no type",
                          input.extents.size());
  }
  throw ConfigError(
      "model.onnx.inputs: nothing says what the input{} {} of {} {}; allowed: inputs {{ name: "
      "\"{}\" is: TOKENS }}, or MASK, SEGMENTS, POSITIONS, FEATURES, IMAGES, TIMES, CLASSES, "
      "TARGET{}",
      plural(indexes.size()),
      inputs,
      config_.file,
      indexes.size() == 1 ? "is" : "are",
      value(indexes[0]).name,
      indexes.size() == 1 ? "" : ", for each of them");
}

void NetworkInputs::require_form(size_t index) const {
  const FileValue& input = value(index);
  const Meaning meaning = meanings_[index];
  const size_t rank = input.extents.size();
  bool good = input.typed;
  switch (meaning) {
    case Meaning::kFeatures:
      good &= (is_id(input.type) || input.type == ElementType::kFloat) && rank >= 1;
      break;
    case Meaning::kImages: good &= input.type == ElementType::kFloat && rank == 4; break;
    case Meaning::kTimes:
      good &= (is_id(input.type) || input.type == ElementType::kFloat) && rank == 1;
      break;
    case Meaning::kClasses: good &= is_id(input.type) && rank == 1; break;
    case Meaning::kTarget:
      good &= is_id(input.type) || input.type == ElementType::kFloat ||
              input.type == ElementType::kBool;
      good &= rank >= 1;
      break;
    case Meaning::kMask:
      good &= is_id(input.type) || is_floating(input.type) || input.type == ElementType::kBool;
      good &= rank == 2;
      break;
    default: good &= is_id(input.type) && rank == 2;
  }
  if (!good)
    throw ConfigError(
        "model.onnx.inputs: the input \"{}\" of {} is {} with {} axes; allowed for {}: {}",
        input.name,
        config_.file,
        input.typed ? name_of(input.type) : "of no type",
        rank,
        word_of(meaning),
        form_of(meaning));
  const bool any_time =
      config_.diffusion && config_.diffusion->schedule == DiffusionSchedule::kFlowMatching;
  if (meaning == Meaning::kTimes && any_time && is_id(input.type))
    throw ConfigError(
        "model.onnx.inputs: the input \"{}\" of {} takes whole times; allowed with "
        "model.onnx.diffusion.schedule FLOW_MATCHING: float, because its times are fractions",
        input.name,
        config_.file);
}

// The extent of the tokens' axis that the file or model.onnx.axes fix; 0 if it is open.
int64_t NetworkInputs::fixed_tokens() const {
  for (size_t index = 0; index < meanings_.size(); ++index) {
    const FileValue& input = value(index);
    if (!is_of_tokens(meanings_[index])) continue;
    if (!has_open_axis(input, 1)) return input.extents[1].extent;
    for (const OnnxAxis& axis : config_.axes)
      if (axis.name == input.name + ".1" || axis.name == input.extents[1].name) return axis.extent;
  }
  return 0;
}

int64_t NetworkInputs::find_context() const {
  if (kind() != config::ModelInput::kTokens) {
    if (config_.context != 0)
      config::refuse_value(
          "model.onnx.context", config_.context, "0, as the network takes no tokens");
    if (config_.task != OnnxConfig::Task::kNextToken)
      throw ConfigError("model.onnx.task: allowed only if all inputs are of tokens");
    return 0;
  }
  if (config_.loss != Loss::kSoftmaxCrossEntropy && config_.loss != Loss::kOutput)
    throw ConfigError(
        "model.onnx.loss: allowed for a network that takes tokens: SOFTMAX_CROSS_ENTROPY, as "
        "model.onnx.task says what is predicted, or OUTPUT; with CONTRASTIVE, tokens are a TARGET "
        "beside IMAGES or FEATURES");
  const int64_t fixed = fixed_tokens();
  if (fixed > 0 && config_.context > 0 && config_.context != fixed)
    config::refuse_value("model.onnx.context",
                         config_.context,
                         "0 or {}, the tokens of a sample in {}",
                         fixed,
                         config_.file);
  if (fixed == 0 && config_.context == 0)
    config::refuse_value("model.onnx.context",
                         0,
                         "how many tokens a sample has, as {} leaves axis 1 of \"{}\" open",
                         config_.file,
                         value(0).name);
  return std::max(fixed, config_.context);
}

// The elements of an input that is constant because samples are pieces of one stream of tokens.
Array NetworkInputs::known(size_t index, int64_t batch, int64_t tokens) const {
  std::vector<double> numbers(static_cast<size_t>(batch * tokens), 0);
  const Meaning meaning = meanings_[index];
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (meaning == Meaning::kMask) numbers[i] = 1;
    if (meaning == Meaning::kPositions)
      numbers[i] = static_cast<double>(static_cast<int64_t>(i) % tokens);
  }
  return array_of(value(index).type, {batch, tokens}, numbers);
}

BindOptions NetworkInputs::options_for(int64_t batch,
                                       int64_t tokens,
                                       const Extents& images,
                                       bool stream) const {
  BindOptions options{.batch = batch,
                      .running_norms = config_.batch_norm == OnnxConfig::BatchNorm::kRunning,
                      .outputs = outputs_of(opened_, config_),
                      .losses = config_.loss == Loss::kOutput ? 1 : SIZE_MAX};
  for (const OnnxAxis& axis : config_.axes) options.axes[axis.name] = axis.extent;
  const int64_t fixed = fixed_tokens();
  if (kind() == config::ModelInput::kTokens && fixed > 0 && fixed != tokens)
    throw ConfigError(
        "execution.length_buckets: value is {}; allowed: none, because {} has {} tokens a sample",
        tokens,
        config_.file,
        fixed);
  for (size_t index = 0; index < meanings_.size(); ++index) {
    Extents extents = {batch};
    if (meanings_[index] == Meaning::kTarget) {
      // In a text, a number for each token.
      if (kind() != config::ModelInput::kTokens || value(index).extents.size() != 2 ||
          !has_open_axis(value(index), 1))
        continue;
      extents.push_back(tokens);
    } else if (kind() == config::ModelInput::kTokens)
      extents.push_back(tokens);
    else if (!images.empty() && meanings_[index] == Meaning::kImages)
      extents.insert(extents.end(), images.begin(), images.end());
    else
      continue;
    options.inputs[value(index).name] = extents;
    const Meaning meaning = meanings_[index];
    const bool next_token = config_.task == OnnxConfig::Task::kNextToken;
    if ((stream && (meaning == Meaning::kMask || meaning == Meaning::kPositions)) ||
        (next_token && meaning == Meaning::kSegments))
      options.known[value(index).name] = known(index, batch, tokens);
  }
  return options;
}

Network NetworkInputs::bind(int64_t batch,
                            int64_t tokens,
                            const Extents& images,
                            bool stream,
                            int64_t max_folded_bytes) const {
  BindOptions options = options_for(batch, tokens, images, stream);
  options.max_folded_bytes = max_folded_bytes;
  log_debug("{}: bound to a batch of {}", config_.file, batch);
  return onnx::bind(opened_.file, opened_.classes, options);
}

std::vector<std::string> NetworkInputs::problems(int64_t batch,
                                                 int64_t tokens,
                                                 const Extents& images,
                                                 bool stream) const {
  return bind_problems(opened_.file, opened_.classes, options_for(batch, tokens, images, stream));
}

}  // namespace lockstep::onnx
