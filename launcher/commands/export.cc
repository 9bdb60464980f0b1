// lockstep export CHECKPOINT|CONFIG --out FILE.safetensors
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "collectives/agreement.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/results.h"
#include "launcher/commands/tensor_names.h"
#include "launcher/common_options.h"
#include "models/registry.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/checkpoint/writer.h"

namespace lockstep {
namespace {

struct ExportOptions {
  std::string from;
  std::string out;
  std::string names = kOwnNames;
  bool average = false;
  std::string log_level = "info";
};

// A checkpoint's folder, or the newest of the run that a config file describes.
std::filesystem::path folder_of(const std::string& from) {
  if (!std::filesystem::is_regular_file(from)) return resolve_checkpoint(from);
  CommonOptions options;
  options.config = from;
  return resolve_checkpoint(read_config(options).output.run_dir);
}

// A checkpoint does not say of which model it is; its tensors do.
ModelTraits model_of(const std::vector<NamedSlice>& layout) {
  const auto has_tensor = [&](const std::string& name) {
    return std::any_of(
        layout.begin(), layout.end(), [&](const auto& slice) { return slice.name == name; });
  };
  return traits_by_tensors(has_tensor).value_or(ModelTraits{});
}

void export_weights(const ExportOptions& options) {
  check_result_path("--out", options.out);
  const std::filesystem::path folder = folder_of(options.from);
  const CheckpointState state = read_state(folder);
  std::vector<float> parameters(static_cast<size_t>(state.flat_elements), 0.0f);
  if (options.average) {
    read_average(folder, state, state.layout, parameters);
  } else {
    read_model(folder, state, state.layout, parameters.data());
  }
  std::vector<NamedSlice> slices = state.layout;
  const ModelTraits model = model_of(slices);
  for (NamedSlice& slice : slices) slice.name = name_in_file(options.names, model, slice.name);
  WrittenFile written;
  replace_file(options.out, [&](const std::filesystem::path& unfinished) {
    written = write_model_file(
        unfinished, slices, parameters.data(), {{"lockstep_step", std::to_string(state.step)}});
  });
  fmt::print("{}: {} tensors of {}, {} bytes\n",
             options.out,
             written.tensors.size(),
             folder.string(),
             written.bytes);
  std::fflush(stdout);
}

ExitCode run_export(Session& session, const ExportOptions& options) {
  init_log(options.log_level, session.communicator().rank(), session.communicator().size());
  run_on_root(session.communicator(), [&] { export_weights(options); });
  return ExitCode::kOk;
}

}  // namespace

CommandSpec export_command() {
  auto options = std::make_shared<ExportOptions>();
  CommandSpec command{.name = "export", .help = "Write a checkpoint's weights for other programs"};
  command.add("CHECKPOINT",
              &options->from,
              "A checkpoint, checkpoints/best, a checkpoints folder or a run folder (the newest), "
              "or the config file of a run",
              {.required = true});
  command.add("--out", &options->out, "The safetensors file to write", {.required = true});
  command.add("--names",
              &options->names,
              "How to name the tensors",
              {.allowed = OneOf{{kOwnNames, kTorchvisionNames}}});
  command.add("--average",
              &options->average,
              "The average of the weights (train.ema_decay) in their place");
  command.run = [options](Session& session) { return run_export(session, *options); };
  return command;
}

}  // namespace lockstep
