#include "runtime/train/state/initial_weights.h"

#include <filesystem>

#include "models/huggingface/folder.h"
#include "models/huggingface/lora_layers.h"
#include "models/huggingface/peft.h"
#include "runtime/base/error.h"
#include "runtime/base/names.h"

namespace lockstep::train {

void require_weights_path(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    if (huggingface::is_model_folder(path)) return;
    throw CheckpointError("{}: {}", path, huggingface::what_it_is_instead(path));
  }
  for (const char* end : {".pt", ".pth", ".bin", ".ckpt", ".h5", ".msgpack"}) {
    if (has_suffix(path, end))
      throw CheckpointError(
          "{}: only Python can read {} files; allowed: a safetensors file, which "
          "safetensors.torch.save_file(state_dict, path) writes, or a folder of save_pretrained",
          path,
          end);
  }
}

namespace {

checkpoint::WeightsRead read_base(const RunConfig& config,
                                  const std::vector<checkpoint::NamedSlice>& slices,
                                  float* parameters) {
  const std::string& from = config.train.init_from;
  if (from.empty()) return {};
  require_weights_path(from);
  if (huggingface::is_model_folder(from))
    return huggingface::read_weights(from, config.model, slices, parameters);
  return checkpoint::read_model_file(from, slices, parameters);
}

}  // namespace

std::vector<std::string> notes_of_data(const RunConfig& config, const data::DataSummary& data) {
  if (!huggingface::is_model_folder(config.train.init_from)) return {};
  return huggingface::notes_of_data(
      config.train.init_from, data.class_names, {data.mean, data.std});
}

checkpoint::WeightsRead read_initial_weights(const RunConfig& config,
                                             const std::vector<checkpoint::NamedSlice>& slices,
                                             float* parameters) {
  checkpoint::WeightsRead read = read_base(config, huggingface::base_slices(slices), parameters);
  if (config.adapter.lora && !config.adapter.lora->from.empty()) {
    const std::string& from = config.adapter.lora->from;
    const std::string note = huggingface::read_peft(from, config, slices, parameters);
    if (!note.empty()) read.notes.push_back(note);
  }
  return read;
}

}  // namespace lockstep::train
