// lockstep import CONFIG FILE.safetensors --out DIR
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "launcher/command_line/common_options.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/models/tensor_names.h"
#include "launcher/ranks/first_rank.h"
#include "models/huggingface/folder.h"
#include "models/registry.h"
#include "runtime/base/checksum.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/checkpoint/format/match.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/checkpoint/format/wrapped_names.h"
#include "runtime/checkpoint/format/writer.h"
#include "runtime/config/limits.h"
#include "runtime/config/paths.h"
#include "runtime/metrics/environment.h"
#include "runtime/plan/layout.h"
#include "runtime/run/lanes.h"
#include "runtime/train/folder/run_folder.h"
#include "runtime/train/state/initial_weights.h"
#include "runtime/train/state/initialize.h"
#include "runtime/train/state/weights.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep::launcher {
namespace {

struct ImportOptions {
  CommonOptions common;
  std::string file;
  std::string out;
  std::string names = kOwnNames;
};

// Prints a line for every tensor that does not fit; throws if there are any.
void check_tensors(const ImportOptions& options,
                   const config::ModelTraits& model,
                   const ModelConfig& config,
                   const checkpoint::ShapeByName& found,
                   const std::vector<checkpoint::NamedSlice>& slices) {
  checkpoint::ShapeByName expected;
  for (const auto& [name, shape] : checkpoint::shapes_in_files(slices))
    expected[name_in_file(options.names, model, name)] = shape;
  const char* const hint = huggingface::has_family(config) && options.names == kOwnNames
                               ? "; for a Hugging Face file give --names huggingface"
                               : "";
  const auto is_expected = [&](const auto& tensor) { return expected.contains(tensor.first); };
  if (std::ranges::none_of(found, is_expected)) {
    const std::set<std::string> names = checkpoint::names_of(found);
    throw CheckpointError(
        "{}: {}{}",
        options.file,
        checkpoint::compare_names({names.begin(), names.end()}, checkpoint::names_of(expected)),
        hint);
  }
  const std::vector<std::string> mismatches = checkpoint::list_mismatches(found, expected);
  for (const std::string& line : mismatches) fmt::print("  {}\n", line);
  std::fflush(stdout);
  checkpoint::refuse_mismatches(options.file, mismatches, "the model's", hint);
}

// Writes the moments before the first step, so that a run can continue from this checkpoint.
checkpoint::FileRecord write_first_moments(const checkpoint::CheckpointWriter& writer,
                                           const checkpoint::CheckpointState& state,
                                           const OptimizerConfig& optimizer) {
  const auto elements = static_cast<size_t>(state.trained_elements());
  const std::vector<float> first(elements, train::initial_moment(optimizer)), zeros(elements, 0.0f);
  std::vector<checkpoint::MomentShard> shards;
  for (const std::string& moment : state.moments)
    shards.push_back({moment, {{0, shards.empty() ? first : zeros}}});
  return writer.write_optimizer_shard(0, 1, shards);
}

checkpoint::CheckpointState state_of(const RunConfig& config,
                                     const plan::ParameterLayout& layout,
                                     const float* parameters) {
  checkpoint::CheckpointState state;
  state.seed = config.seed;
  state.lanes = config.train.lanes;
  state.ranks = 1;
  state.global_batch = config.train.global_batch;
  state.lockstep_version = metrics::lockstep_version();
  state.weights_hash = train::hash_parameters(layout, parameters);
  state.config_hash = hash_text(config::recorded_text(config));
  state.extra[checkpoint::kImportedConfigKey] = config::recorded_text(config);
  state.optimizer = train::optimizer_name(config.optimizer);
  state.moments = train::saved_moments(config.optimizer);
  state.flat_elements = layout.elements;
  state.layout = train::named_slices(layout);
  return state;
}

// The run folder that a folder of checkpoints is in, or is itself.
std::filesystem::path run_folder_of(const std::string& out) {
  std::filesystem::path path = std::filesystem::absolute(out).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // after a slash
  return path.filename() == "checkpoints" ? path.parent_path() : path;
}

void check_no_checkpoints(const std::string& out) {
  if (!checkpoint::list_checkpoints(out).empty())
    throw CheckpointError("--out: '{}' has checkpoints already; give another folder", out);
}

// Weights, and the config of their run: what it leaves to the weights is filled in.
struct ImportedWeights {
  RunConfig config;
  plan::ParameterLayout layout;
  std::vector<float> parameters;
};

// Config and layout for these weights; the parameters are zeros.
ImportedWeights resolve(const run::OpenedConfig& opened, const models::ModelIo& io) {
  ImportedWeights weights{.config = opened.config, .layout = {}, .parameters = {}};
  weights.config.model = opened.model->resolved(io);
  const auto model = models::reopen_model(opened.model, weights.config.model);
  weights.layout =
      plan::make_layout(model->build(io, model->fewest_samples(), graph::Purpose::kTraining),
                        static_cast<int>(weights.config.train.lanes));
  weights.parameters.resize(static_cast<size_t>(weights.layout.elements), 0.0f);
  return weights;
}

// The tensors of the model for data of usual extents, because the file's are not known yet.
std::vector<checkpoint::NamedSlice> usual_slices(const run::OpenedConfig& opened) {
  const auto nothing = [](const std::string&) { return std::nullopt; };
  return train::named_slices(resolve(opened, opened.model->io_of_weights(nothing)).layout);
}

// The weights of a file with Lockstep's names, or torchvision's.
ImportedWeights read_own(const ImportOptions& options, const run::OpenedConfig& opened) {
  const checkpoint::SafetensorsFile file(options.file);
  const config::ModelTraits& model = opened.model->traits();
  std::set<std::string> known;
  for (const checkpoint::NamedSlice& slice : usual_slices(opened))
    known.insert(name_in_file(options.names, model, slice.name));
  const checkpoint::PlainTensors found = checkpoint::plain_tensors(file, known);
  if (!found.note.empty()) fmt::print("  {}\n", found.note);
  const models::ModelIo io = opened.model->io_of_weights(
      [&](const std::string& name) -> std::optional<std::vector<int64_t>> {
        const auto at = found.shapes.find(name_in_file(options.names, model, name));
        return at == found.shapes.end() ? std::nullopt : std::optional(at->second);
      });
  ImportedWeights weights = resolve(opened, io);
  const std::vector<checkpoint::NamedSlice> slices = train::named_slices(weights.layout);
  check_tensors(options, model, weights.config.model, found.shapes, slices);
  checkpoint::read_tensors(
      file,
      slices,
      [&](const std::string& name) {
        return found.name_in_file.at(name_in_file(options.names, model, name));
      },
      weights.parameters.data());
  return weights;
}

// The weights of a folder or a file with Hugging Face's names. A head that it lacks is initialised
// from scratch.
ImportedWeights read_hugging_face(const ImportOptions& options, const run::OpenedConfig& opened) {
  const models::ModelIo io = opened.model->io_of_weights(
      huggingface::extents_in(options.file, opened.config.model, usual_slices(opened)));
  ImportedWeights weights = resolve(opened, io);
  train::initialize_parameters(weights.layout, weights.config.seed, weights.parameters.data());
  const auto read = huggingface::is_model_folder(options.file) ? huggingface::read_weights
                                                               : huggingface::read_weights_file;
  const checkpoint::WeightsRead found = read(options.file,
                                             weights.config.model,
                                             train::named_slices(weights.layout),
                                             weights.parameters.data());
  for (const std::string& note : found.notes) fmt::print("  {}\n", note);
  return weights;
}

void import_weights(const ImportOptions& options) {
  require_result_folder("--out", options.out);
  const run::OpenedConfig opened = run::choose_lanes(read_config(options.common)).opened;
  const RunConfig& config = opened.config;
  if (config.adapter.lora)
    throw ConfigError(
        "adapter.lora: not allowed with import; a run with a LoRA takes its weights from "
        "train.init_from");
  for (size_t i = 0; i < config.train.groups.size(); ++i) {
    if (const auto how = config.train.groups[i].initialize; how != GroupConfig::Initialize::kKeep)
      config::refuse_value(fmt::format("train.groups[{}].initialize", i),
                           lockstep::name_of(how),
                           "KEEP with import, which keeps what it reads");
  }
  check_no_checkpoints(options.out);
  train::require_weights_path(options.file);
  const bool from_hugging_face =
      huggingface::is_model_folder(options.file) || options.names == kHuggingFaceNames;
  const ImportedWeights weights =
      from_hugging_face ? read_hugging_face(options, opened) : read_own(options, opened);
  const std::vector<checkpoint::NamedSlice> slices = train::named_slices(weights.layout);
  checkpoint::CheckpointState state =
      state_of(weights.config, weights.layout, weights.parameters.data());
  const train::RunFolder one_writer(run_folder_of(options.out));
  check_no_checkpoints(options.out);
  const checkpoint::CheckpointWriter writer =
      checkpoint::CheckpointWriter::begin(options.out, state.step);
  std::filesystem::path folder;
  try {
    state.files.push_back(writer.write_model(slices, weights.parameters.data()));
    if (!state.moments.empty())
      state.files.push_back(write_first_moments(writer, state, weights.config.optimizer));
    folder = writer.commit(state);
  } catch (const Error&) {
    writer.abandon();
    throw;
  }
  fmt::print("{}: {} parameters in {} tensors, weights_hash {}\n",
             folder.string(),
             weights.layout.parameters,
             slices.size(),
             to_hex(state.weights_hash));
}

}  // namespace

CommandSpec import_command() {
  auto options = std::make_shared<ImportOptions>();
  CommandSpec command{.name = "import",
                      .help = "Make a checkpoint from the weights of another program",
                      .also = "load convert"};
  add_config_argument(command, options->common);
  command.add("FILE",
              &options->file,
              "A safetensors file, or a folder as Hugging Face's save_pretrained writes it",
              {.required = true});
  command.add("--out",
              &options->out,
              "Folder to write the checkpoint to",
              {.required = true, .also = "output o output_dir outdir save"});
  add_set_option(command, options->common);
  command.add("--names",
              &options->names,
              "How the file names the tensors",
              {.allowed = OneOf{{kOwnNames, kTorchvisionNames, kHuggingFaceNames}}});
  command.run = [options](Session& session) {
    return on_first_rank(session, options->common.log_level, [&] { import_weights(*options); });
  };
  return command;
}

}  // namespace lockstep::launcher
