// lockstep export CHECKPOINT|CONFIG --out FILE.safetensors
#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "launcher/command_line/common_options.h"
#include "launcher/command_line/config_source.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/models/exported_inputs.h"
#include "launcher/models/tensor_names.h"
#include "launcher/ranks/first_rank.h"
#include "launcher/run/checkpoint_config.h"
#include "launcher/run/checkpoint_io.h"
#include "models/huggingface/folder.h"
#include "models/huggingface/lora_layers.h"
#include "models/huggingface/peft.h"
#include "models/onnx/from_graph/network_file.h"
#include "models/onnx/trained_file.h"
#include "models/registry.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/names.h"
#include "runtime/checkpoint/format/class_names.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/checkpoint/format/writer.h"

namespace lockstep::launcher {
namespace {

constexpr const char* kSafetensors = "safetensors";
constexpr const char* kHuggingFace = "huggingface";
constexpr const char* kPeft = "peft";
constexpr const char* kOnnx = "onnx";

struct ExportOptions {
  std::string from;
  std::string out;
  std::string format;  // by the ending of `out` if empty
  std::string like;
  std::string dtype = "auto";
  std::string names = kOwnNames;
  bool average = false;
  bool with_preprocessing = false;
  std::string log_level = "info";
};

// A checkpoint's folder, that of a run, or that of the run which a config file describes.
std::filesystem::path folder_of(const std::string& from) {
  if (!is_file(from)) return weights_at(from);
  CommonOptions options;
  options.config = from;
  return weights_at(read_config(options).config.output.run_dir);
}

// The model of a checkpoint, recognised by its tensors.
config::ModelTraits model_of(const std::vector<checkpoint::NamedSlice>& layout) {
  const auto has_tensor = [&](const std::string& name) {
    return std::ranges::any_of(layout, [&](const auto& slice) { return slice.name == name; });
  };
  return models::traits_by_tensors(has_tensor).value_or(config::ModelTraits{});
}

std::optional<checkpoint::FileDtype> dtype_of(const std::string& name) {
  if (name == "f32") return checkpoint::FileDtype::kF32;
  if (name == "bf16") return checkpoint::FileDtype::kBf16;
  if (name == "f16") return checkpoint::FileDtype::kF16;
  return std::nullopt;
}

std::map<std::string, std::string> metadata_of(const checkpoint::CheckpointState& state) {
  return {{"lockstep_step", std::to_string(state.step)}};
}

void print_written(const ExportOptions& options,
                   const std::filesystem::path& folder,
                   const checkpoint::WrittenFile& written) {
  fmt::print("{}: {} tensors of {}, {} bytes\n",
             options.out,
             written.tensors.size(),
             folder.string(),
             written.bytes);
}

void write_lora(const ExportOptions& options,
                const std::filesystem::path& folder,
                const checkpoint::CheckpointState& state,
                const float* parameters) {
  const run::OpenedConfig opened = config_of_checkpoint(folder, state);
  const RunConfig& config = opened.config;
  const config::ModelTraits& model = opened.model->traits();
  const bool is_causal_lm =
      model.input == config::ModelInput::kTokens && model.text_task == config::TextTask::kNextToken;
  ExportedInputs inputs = exported_inputs(opened, state, folder.string());
  inputs.model = Json::object();  // the folder of an adapter has no config.json
  const checkpoint::WrittenFile written = huggingface::write_peft(
      options.out,
      config,
      state.layout,
      parameters,
      is_causal_lm,
      metadata_of(state),
      [&](const std::filesystem::path& unfinished) { (void)write_files(inputs, unfinished); });
  for (const std::string& note : huggingface::notes_of_base(config))
    log_warn("{}: {}; --format huggingface adds the LoRA to the weights", options.out, note);
  print_written(options, folder, written);
  if (inputs.unknown.empty()) fmt::print("{}\n", line_of(inputs, options.out, "in its files"));
}

// For a safetensors file, which needs no config: that of an old checkpoint, or of a network whose
// file is gone, may be unreadable.
ExportedInputs inputs_of_weights(const std::filesystem::path& folder,
                                 const checkpoint::CheckpointState& state) {
  try {
    return exported_inputs(config_of_checkpoint(folder, state), state, folder.string());
  } catch (const Error& error) {
    ExportedInputs inputs;
    inputs.unknown = error.what();
    return inputs;
  }
}

// Writes a Hugging Face folder, with a LoRA merged into the weights.
void write_hugging_face(const ExportOptions& options,
                        const std::filesystem::path& folder,
                        const checkpoint::CheckpointState& state,
                        float* parameters) {
  const run::OpenedConfig opened = config_of_checkpoint(folder, state);
  const RunConfig& config = opened.config;
  const ExportedInputs inputs = exported_inputs(opened, state, folder.string());
  huggingface::merge_lora(config, state.layout, parameters);
  std::string like = options.like;
  const std::string& origin = config.train.init_from;
  if (like.empty() && huggingface::is_model_folder(origin)) like = origin;
  if (like.empty() && !origin.empty() && !lockstep::is_there(origin))
    log_warn(
        "{}: has {}only those fields of config.json that training knows, because {}, which the run "
        "began with, is not here; --like FOLDER takes the rest from another folder",
        options.out,
        inputs.tokenizer.empty() ? "no tokenizer, and " : "",
        origin);
  const huggingface::WrittenFolder written = huggingface::write_folder(
      options.out,
      config.model,
      huggingface::base_slices(state.layout),
      parameters,
      {.like = like,
       .dtype = dtype_of(options.dtype),
       .metadata = metadata_of(state),
       .data = config.data,
       .class_names = inputs.class_names,
       .images = inputs.preprocessing ? inputs.preprocessing->images : std::nullopt,
       .tokenizer = inputs.tokenizer});
  print_written(options, folder, written.weights);
  for (const std::string& name : written.copied)
    fmt::print("{}: {} is that of {}\n", options.out, name, like);
  if (inputs.unknown.empty()) fmt::print("{}\n", line_of(inputs, options.out, "in its files"));
}

// Whether the format's result is a folder.
bool is_folder_wanted(const ExportOptions& options) {
  if (options.format == kOnnx) return !std::filesystem::path(options.out).has_extension();
  return options.format == kHuggingFace || options.format == kPeft;
}

// Writes the file that the run's network came from, with the learned weights, or a file of the
// network of a built-in family, with a LoRA merged into the weights; both with the preprocessing.
// In a folder, files of the preprocessing are beside it.
void write_onnx(const ExportOptions& options,
                const std::filesystem::path& folder,
                const checkpoint::CheckpointState& state,
                float* parameters) {
  const run::OpenedConfig opened = config_of_checkpoint(folder, state);
  const auto* network = std::get_if<OnnxConfig>(&opened.config.model);
  const std::string name =
      network != nullptr ? network->file : "model." + config::name_of(opened.config.model);
  ExportedInputs inputs = exported_inputs(opened, state, folder.string());
  onnx::TrainedFileOptions additions;
  std::string where = "in its metadata";
  if (options.with_preprocessing) {
    where = put_into_network(opened.model->traits(), inputs);
    additions.preprocessing = &*inputs.preprocessing;
  }
  additions.metadata = metadata_of(inputs);
  const auto elements_of = [&](const std::string& tensor) {
    for (const checkpoint::NamedSlice& slice : state.layout)
      if (slice.name == tensor) return parameters + slice.offset;
    throw CheckpointError("{}: has no tensor \"{}\" of {}", folder.string(), tensor, name);
  };
  if (network == nullptr) huggingface::merge_lora(opened.config, state.layout, parameters);
  const auto write = [&](const std::filesystem::path& path) {
    if (network != nullptr) return onnx::write_trained(*network, path, elements_of, additions);
    const models::ModelIo io = io_of_run(opened, state, folder.string());
    const auto model = models::reopen_model(opened.model, opened.model->resolved(io));
    onnx::write_network(*model, io, path, elements_of, additions);
  };
  if (is_folder_wanted(options)) {
    huggingface::make_folder(options.out, [&](const std::filesystem::path& unfinished) {
      write(unfinished / "model.onnx");
      for (const std::string& file : write_files(inputs, unfinished)) where += ", " + file;
      return checkpoint::WrittenFile();
    });
  } else {
    write(options.out);
  }
  fmt::print("{}: {} with the weights of {}\n", options.out, name, folder.string());
  fmt::print("{}\n", line_of(inputs, options.out, where));
}

// The format of a path without --format: that of its ending, or without one a folder.
const char* format_by_ending(const std::string& out) {
  if (has_suffix(out, ".onnx")) return kOnnx;
  if (has_suffix(out, ".safetensors")) return kSafetensors;
  if (!is_folder(out)) require_ending("--out", out, {".safetensors", ".onnx", ""});
  return kHuggingFace;
}

void export_weights(ExportOptions options) {
  if (options.format.empty()) options.format = format_by_ending(options.out);
  const bool to_folder = options.format == kHuggingFace, to_peft = options.format == kPeft;
  if (options.with_preprocessing && options.format != kOnnx)
    throw ConfigError("--with-preprocessing: allowed: only with --format {}", kOnnx);
  if (options.names != kOwnNames && options.format != kSafetensors)
    throw ConfigError("--names {}: allowed: only with --format {}", options.names, kSafetensors);
  if (is_folder_wanted(options))
    require_result_folder("--out", options.out);
  else
    require_result_path("--out", options.out, {options.format == kOnnx ? ".onnx" : ".safetensors"});
  if (!to_folder) {
    if (!options.like.empty() || options.dtype != "auto")
      throw ConfigError("--like, --dtype: allowed: only with --format {}", kHuggingFace);
  }
  const std::filesystem::path folder = folder_of(options.from);
  const checkpoint::CheckpointState state = checkpoint::read_state(folder);
  std::vector<float> parameters(static_cast<size_t>(state.flat_elements), 0.0f);
  if (options.average) {
    checkpoint::read_average(folder, state, state.layout, parameters);
  } else {
    checkpoint::read_model(folder, state, state.layout, parameters.data());
  }
  if (to_peft) return write_lora(options, folder, state, parameters.data());
  if (options.format == kOnnx) return write_onnx(options, folder, state, parameters.data());
  if (to_folder) return write_hugging_face(options, folder, state, parameters.data());
  std::vector<checkpoint::NamedSlice> slices = state.layout;
  const config::ModelTraits model = model_of(slices);
  for (checkpoint::NamedSlice& slice : slices)
    slice.name = name_in_file(options.names, model, slice.name);
  const ExportedInputs inputs = inputs_of_weights(folder, state);
  std::map<std::string, std::string> metadata = metadata_of(inputs);
  metadata.merge(metadata_of(state));
  checkpoint::WrittenFile written;
  replace_file(options.out, [&](const std::filesystem::path& unfinished) {
    written = checkpoint::write_model_file(unfinished, slices, parameters.data(), metadata);
  });
  print_written(options, folder, written);
  fmt::print("{}\n", line_of(inputs, options.out, "in its metadata"));
}

}  // namespace

CommandSpec export_command() {
  auto options = std::make_shared<ExportOptions>();
  CommandSpec command{
      .name = "export", .help = "Write a checkpoint's weights for other programs", .also = "save"};
  command.add(
      "CHECKPOINT",
      &options->from,
      "A checkpoint, checkpoints/best, a checkpoints folder (the newest), or a run folder or "
      "its config file (its best checkpoint, or its newest if it has none)",
      {.required = true, .also = "checkpoint ckpt run input i"});
  command.add("--out",
              &options->out,
              "The .safetensors or .onnx file, or the folder, to write",
              {.required = true, .also = "output o out_file output_file outfile save output_dir"});
  command.add(
      "--format",
      &options->format,
      "By default that of the ending of --out: .safetensors, .onnx, or for a folder huggingface. A "
      "safetensors file; a folder that Hugging Face's from_pretrained reads, with a LoRA added to "
      "the weights; a folder of the LoRA alone, as PEFT reads it; or an ONNX file: that of the "
      "network with its new weights, or a new one of a built-in family",
      {.allowed = OneOf{{kSafetensors, kHuggingFace, kPeft, kOnnx}},
       .also = "hf=huggingface transformers=huggingface pytorch=safetensors pt=safetensors "
               "torch=safetensors lora=peft"});
  command.add("--like",
              &options->like,
              "A Hugging Face folder from which the new one takes the tokenizer and other fields "
              "of config.json; by default the one that the run began from");
  command.add("--dtype",
              &options->dtype,
              "The type of the weights in a folder; auto: that of the folder of --like if it loses "
              "nothing, otherwise f32",
              {.show_default = true, .allowed = OneOf{{"auto", "f32", "bf16", "f16"}}});
  command.add("--names",
              &options->names,
              "How to name the tensors",
              {.allowed = OneOf{{kOwnNames, kTorchvisionNames}}});
  command.add("--with-preprocessing",
              &options->with_preprocessing,
              "The ONNX network takes what the data have: pixels as uint8 (N, H, W, C), or each "
              "column of a table (N, 1) as double or string");
  command.add("--average", &options->average, "Use the average of the weights (train.ema_decay)");
  command.run = [options](Session& session) {
    return on_first_rank(session, options->log_level, [&] { export_weights(*options); });
  };
  return command;
}

}  // namespace lockstep::launcher
