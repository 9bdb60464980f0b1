#include "launcher/models/exported_inputs.h"

#include <fmt/ranges.h>

#include "models/huggingface/labels.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/format/class_names.h"
#include "runtime/checkpoint/format/preprocessing.h"
#include "runtime/data/text/data_tokenizer.h"

namespace lockstep::launcher {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxTokenizerBytes = size_t{256} << 20;
// The limit of one entry: the headers of safetensors files are limited.
constexpr size_t kMaxMetadataBytes = size_t{40} << 20;

// The path of the tokenizer that the data section names; empty if it names none.
fs::path tokenizer_path(const DataConfig& data) {
  return std::visit(
      [&](const auto& source) -> fs::path {
        if constexpr (requires { source.tokenizer; })
          if (!source.tokenizer.empty()) return data::path_in_data(data, source.tokenizer);
        return {};
      },
      data.source);
}

// Metadata are texts, which a SentencePiece model is not.
bool is_text(const std::string& bytes) {
  try {
    (void)Json(bytes).dump();
    return true;
  } catch (const JsonError&) {
    return false;
  }
}

// What makes probabilities of the outputs; null if they are no classes.
const char* function_of(const config::ModelTraits& model) {
  switch (model.scored_kind()) {
    case config::TargetKind::kClass: return model.diffusion ? nullptr : "softmax";
    case config::TargetKind::kDistribution:
    case config::TargetKind::kPixelClasses:
    case config::TargetKind::kTokenClasses: return "softmax";
    case config::TargetKind::kYesNo: return "sigmoid";
    case config::TargetKind::kNone:
    case config::TargetKind::kValues:
    case config::TargetKind::kTokens:
    case config::TargetKind::kTranscript:
    case config::TargetKind::kSimilarity:
    case config::TargetKind::kPreference:
    case config::TargetKind::kNamed: return nullptr;
  }
  LOCKSTEP_CHECK(false);
}

void describe_outputs(const config::ModelTraits& model, ExportedInputs& inputs) {
  const char* const function = function_of(model);
  if (function == nullptr) return;
  if (!inputs.class_names.empty()) huggingface::set_labels(inputs.class_names, inputs.model);
  inputs.model["function_to_apply"] = function;
  const auto classes = static_cast<int64_t>(inputs.class_names.size());
  if (classes + model.outputs > 0)
    inputs.description += fmt::format(", {} classes", model.outputs > 0 ? model.outputs : classes);
}

void describe_tokens(const run::OpenedConfig& opened, ExportedInputs& inputs) {
  const config::ModelTraits& model = opened.model->traits();
  const DataConfig& data = opened.config.data;
  if (model.context > 0) inputs.model["model_max_length"] = model.context;
  const fs::path path = tokenizer_path(data);
  inputs.tokenizer = tokenizer_files_at(path);
  if (std::holds_alternative<TextConfig>(data.source)) {
    inputs.description = "bytes of the text as tokens";
  } else if (!inputs.tokenizer.empty()) {
    std::vector<std::string> names;
    for (const TokenizerFile& file : inputs.tokenizer) names.push_back(file.name);
    inputs.description = fmt::format("tokens by {}", fmt::join(names, ", "));
  } else {
    inputs.unknown = path.empty() ? "the config names no tokenizer"
                                  : fmt::format("the tokenizer {} is not there", path.string());
    return;
  }
  if (model.context > 0) inputs.description += fmt::format(", up to {}", model.context);
}

void describe_numbers(const config::ModelTraits& model,
                      const checkpoint::CheckpointState& state,
                      const std::string& origin,
                      ExportedInputs& inputs) {
  std::optional<Json> kept = checkpoint::kept_preprocessing(state, origin);
  if (!kept) {
    inputs.unknown = fmt::format(
        "{} has none, as it was imported or an older version wrote it; train one step from it",
        origin);
    return;
  }
  try {
    inputs.preprocessing = config::preprocessing_of(*kept);
  } catch (const JsonError& error) {
    throw CheckpointError("{}: its preprocessing: {}", origin, error.what());
  }
  inputs.preprocessor = *std::move(kept);
  if (inputs.preprocessing->images)
    inputs.preprocessor["data_format"] = model.wants_images() ? "channels_first" : "channels_last";
  inputs.description = config::describe(*inputs.preprocessing);
}

}  // namespace

ExportedInputs exported_inputs(const run::OpenedConfig& opened,
                               const checkpoint::CheckpointState& state,
                               const std::string& origin) {
  const config::ModelTraits& model = opened.model->traits();
  ExportedInputs inputs;
  inputs.class_names = checkpoint::kept_class_names(state, origin);
  if (model.input == config::ModelInput::kTokens)
    describe_tokens(opened, inputs);
  else
    describe_numbers(model, state, origin, inputs);
  describe_outputs(model, inputs);
  return inputs;
}

std::string put_into_network(const config::ModelTraits& model, ExportedInputs& inputs) {
  const char* reason = nullptr;
  if (model.input == config::ModelInput::kTokens)
    reason = "ONNX has no nodes that make tokens; allowed: networks of images or tables";
  else if (model.diffusion)
    reason = "the network takes noised images; allowed: networks that predict classes or values";
  if (reason != nullptr) throw ConfigError("--with-preprocessing: {}", reason);
  if (!inputs.preprocessing)
    throw ConfigError("--with-preprocessing: it is unknown: {}", inputs.unknown);
  config::mark_as_in_network(inputs.preprocessor);
  if (const auto& images = inputs.preprocessing->images) {
    inputs.preprocessor["data_format"] = "channels_last";
    return fmt::format("in its graph, which takes pixels (N, {}, {}, {}) uint8{}",
                       images->height,
                       images->width,
                       images->channels(),
                       images->resize > 0 ? ", resized and cropped" : "");
  }
  const size_t columns =
      inputs.preprocessing->table ? inputs.preprocessing->table->columns.size() : 0;
  return fmt::format("in its graph, which takes {} columns (N, 1)", columns);
}

std::map<std::string, std::string> metadata_of(const ExportedInputs& inputs) {
  std::map<std::string, std::string> metadata;
  for (const Json* const fields : {&inputs.preprocessor, &inputs.model})
    for (const std::string& name : fields->names()) metadata[name] = fields->at(name).dump();
  for (const TokenizerFile& file : inputs.tokenizer)
    metadata[file.name] = read_file(file.path, kMaxTokenizerBytes);
  std::erase_if(metadata, [](const auto& entry) {
    const char* const reason = entry.second.size() > kMaxMetadataBytes ? "is too large"
                               : !is_text(entry.second)                ? "is not a text"
                                                                       : nullptr;
    if (reason != nullptr) log_warn("the metadata are without {}, which {}", entry.first, reason);
    return reason != nullptr;
  });
  return metadata;
}

std::vector<std::string> write_files(const ExportedInputs& inputs, const fs::path& folder) {
  std::vector<std::string> names;
  const auto write = [&](const std::string& name, const Json& fields) {
    if (fields.empty()) return;
    write_file_atomically(folder / name, fields.dump({.indent = 2}) + "\n");
    names.push_back(name);
  };
  write("preprocessor_config.json", inputs.preprocessor);
  write("config.json", inputs.model);
  for (const TokenizerFile& file : inputs.tokenizer) {
    fs::copy_file(file.path, folder / file.name);
    names.push_back(file.name);
  }
  return names;
}

std::string line_of(const ExportedInputs& inputs,
                    const std::string& out,
                    const std::string& where) {
  if (!inputs.unknown.empty())
    return fmt::format("{}: preprocessing unknown: {}", out, inputs.unknown);
  return fmt::format("{}: preprocessing {}: {}", out, where, inputs.description);
}

}  // namespace lockstep::launcher
