// lockstep import CONFIG FILE.safetensors --out DIR
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "collectives/agreement.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/results.h"
#include "launcher/commands/tensor_names.h"
#include "launcher/common_options.h"
#include "models/huggingface/folder.h"
#include "models/registry.h"
#include "runtime/base/checksum.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/match.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/checkpoint/writer.h"
#include "runtime/config/limits.h"
#include "runtime/config/parse.h"
#include "runtime/metrics/environment.h"
#include "runtime/plan/layout.h"
#include "runtime/train/checkpoints/initial_weights.h"
#include "runtime/train/checkpoints/initialize.h"
#include "runtime/train/checkpoints/resume_check.h"
#include "runtime/train/checkpoints/weights.h"
#include "runtime/train/folder/run_folder.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep {
namespace {

struct ImportOptions {
  CommonOptions common;
  std::string file;
  std::string out;
  std::string names = kOwnNames;
};

// What the file has, by the model's names. Files of wrapped models have "module." before every
// name.
struct FoundTensors {
  ShapeByName shapes;
  std::string prefix;
};

FoundTensors find_tensors(const SafetensorsFile& file) {
  FoundTensors found;
  constexpr const char* kWrapped = "module.";
  const ShapeByName all = shapes_of(file);
  const bool wrapped = std::all_of(all.begin(), all.end(), [](const auto& tensor) {
    return tensor.first.starts_with(kWrapped);
  });
  if (wrapped && !all.empty()) found.prefix = kWrapped;
  for (const auto& [name, shape] : all) {
    if (!is_bookkeeping(name)) found.shapes[name.substr(found.prefix.size())] = shape;
  }
  return found;
}

// Prints a line for every tensor that does not fit; throws if there are any.
void check_tensors(const ImportOptions& options,
                   const ModelTraits& model,
                   const ModelConfig& config,
                   const FoundTensors& found,
                   const std::vector<NamedSlice>& slices) {
  ShapeByName expected;
  for (const auto& [name, shape] : shapes_in_files(slices))
    expected[name_in_file(options.names, model, name)] = shape;
  const std::vector<std::string> mismatches = list_mismatches(found.shapes, expected);
  for (const std::string& line : mismatches) fmt::print("  {}\n", line);
  std::fflush(stdout);
  if (!mismatches.empty())
    throw CheckpointError("{}: {} of its tensors and the model's do not match: {}{}",
                          options.file,
                          mismatches.size(),
                          mismatches.front(),
                          huggingface::has_family(config) && options.names == kOwnNames
                              ? "; for a file of Hugging Face give --names huggingface"
                              : "");
}

// Moments as they are before the first step: a run may go on from here.
FileRecord write_zero_moments(const CheckpointWriter& writer, const CheckpointState& state) {
  const std::vector<float> zeros(static_cast<size_t>(state.trained_elements()), 0.0f);
  std::vector<MomentShard> shards;
  for (const std::string& moment : state.moments) shards.push_back({moment, {{0, zeros}}});
  return writer.write_optimizer_shard(0, 1, shards);
}

CheckpointState state_of(const RunConfig& config,
                         const ParameterLayout& layout,
                         const float* parameters) {
  CheckpointState state;
  state.seed = config.seed;
  state.lanes = config.train.lanes;
  state.ranks = 1;
  state.global_batch = config.train.global_batch;
  state.lockstep_version = lockstep_version();
  state.weights_hash = hash_parameters(layout, parameters);
  state.config_hash = hash_text(to_text(config));
  state.extra[kImportedConfigKey] = to_text(config);
  state.optimizer = optimizer_name(config.optimizer);
  state.moments = moment_names(config.optimizer);
  state.flat_elements = layout.elements;
  state.layout = named_slices(layout);
  return state;
}

// The run folder that a folder of checkpoints is in, or is itself.
std::filesystem::path run_folder_of(const std::string& out) {
  std::filesystem::path path = std::filesystem::absolute(out).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // after a slash
  return path.filename() == "checkpoints" ? path.parent_path() : path;
}

void check_no_checkpoints(const std::string& out) {
  if (!list_checkpoints(out).empty())
    throw CheckpointError("--out: '{}' has checkpoints already; give another folder", out);
}

ParameterLayout layout_of(const RunConfig& config, const ModelIo& io) {
  return make_layout(
      build_model(config.model, io, fewest_samples(config.model), Purpose::kTraining),
      static_cast<int>(config.train.lanes));
}

// The parameters of a file with our names, or torchvision's. Fills in what `config` leaves to the
// weights, and `layout`.
std::vector<float> read_own(const ImportOptions& options,
                            RunConfig& config,
                            ParameterLayout& layout) {
  const SafetensorsFile file(options.file);
  const FoundTensors found = find_tensors(file);
  const ModelTraits model = traits_of(config.model);
  const ModelIo io = io_of_weights(
      config.model, [&](const std::string& name) -> std::optional<std::vector<int64_t>> {
        const auto at = found.shapes.find(name_in_file(options.names, model, name));
        return at == found.shapes.end() ? std::nullopt : std::optional(at->second);
      });
  config.model = resolve_model(config.model, io);
  layout = layout_of(config, io);
  const std::vector<NamedSlice> slices = named_slices(layout);
  check_tensors(options, model, config.model, found, slices);
  std::vector<float> parameters(static_cast<size_t>(layout.elements), 0.0f);
  read_tensors(
      file,
      slices,
      [&](const std::string& name) {
        return found.prefix + name_in_file(options.names, model, name);
      },
      parameters.data());
  return parameters;
}

// The same of a folder or a file with Hugging Face's names. A head that is not there is new.
std::vector<float> read_hugging_face(const ImportOptions& options,
                                     RunConfig& config,
                                     ParameterLayout& layout) {
  const ModelIo io =
      io_of_weights(config.model, huggingface::extents_in(options.file, config.model));
  config.model = resolve_model(config.model, io);
  layout = layout_of(config, io);
  std::vector<float> parameters(static_cast<size_t>(layout.elements), 0.0f);
  initialize_parameters(layout, config.seed, parameters.data());
  const auto read = huggingface::is_model_folder(options.file) ? huggingface::read_weights
                                                               : huggingface::read_weights_file;
  const WeightsRead found =
      read(options.file, config.model, named_slices(layout), parameters.data());
  for (const std::string& note : found.notes) fmt::print("  {}\n", note);
  return parameters;
}

void import_weights(const ImportOptions& options) {
  RunConfig config = read_config(options.common);
  if (config.adapter.lora)
    throw ConfigError(
        "adapter.lora: given; allowed with import: none, as weights begin with train.init_from there");
  for (size_t i = 0; i < config.train.groups.size(); ++i) {
    if (const auto how = config.train.groups[i].initialize; how != GroupConfig::Initialize::kKeep)
      refuse_value(fmt::format("train.groups[{}].initialize", i),
                   name_of(how),
                   "KEEP with import, which keeps what it reads");
  }
  check_no_checkpoints(options.out);
  check_weights_path(options.file);
  const bool from_hugging_face =
      huggingface::is_model_folder(options.file) || options.names == kHuggingFaceNames;
  ParameterLayout layout;
  const std::vector<float> parameters = from_hugging_face
                                            ? read_hugging_face(options, config, layout)
                                            : read_own(options, config, layout);
  const std::vector<NamedSlice> slices = named_slices(layout);
  CheckpointState state = state_of(config, layout, parameters.data());
  const RunFolder one_writer(run_folder_of(options.out));
  check_no_checkpoints(options.out);
  const CheckpointWriter writer = CheckpointWriter::begin(options.out, state.step);
  std::filesystem::path folder;
  try {
    state.files.push_back(writer.write_model(slices, parameters.data()));
    if (!state.moments.empty()) state.files.push_back(write_zero_moments(writer, state));
    folder = writer.commit(state);
  } catch (const Error&) {
    writer.abandon();
    throw;
  }
  fmt::print("{}: {} parameters in {} tensors, weights_hash {}\n",
             folder.string(),
             layout.parameters,
             slices.size(),
             hash_text_of(state.weights_hash));
  std::fflush(stdout);
}

ExitCode run_import(Session& session, const ImportOptions& options) {
  init_log(options.common.log_level, session.communicator().rank(), session.communicator().size());
  run_on_root(session.communicator(), [&] { import_weights(options); });
  return ExitCode::kOk;
}

}  // namespace

CommandSpec import_command() {
  auto options = std::make_shared<ImportOptions>();
  CommandSpec command{.name = "import",
                      .help = "Make a checkpoint of weights from another program"};
  add_config_argument(command, options->common);
  command.add("FILE",
              &options->file,
              "A safetensors file, or a folder as Hugging Face's save_pretrained writes it",
              {.required = true});
  command.add("--out", &options->out, "Folder to write the checkpoint to", {.required = true});
  add_set_option(command, options->common);
  command.add("--names",
              &options->names,
              "How the file names the tensors",
              {.allowed = OneOf{{kOwnNames, kTorchvisionNames, kHuggingFaceNames}}});
  command.run = [options](Session& session) { return run_import(session, *options); };
  return command;
}

}  // namespace lockstep
