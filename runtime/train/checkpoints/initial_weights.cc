#include "runtime/train/checkpoints/initial_weights.h"

#include <filesystem>

#include "models/huggingface/folder.h"
#include "runtime/base/error.h"
#include "runtime/checkpoint/match.h"
#include "runtime/checkpoint/reader.h"

namespace lockstep {

namespace {

// What begins the names of the last layer's parameters, where that is a linear layer: the head,
// which may be another one in the file. Empty: none.
std::string head_of(const std::vector<NamedSlice>& slices) {
  const auto layer_of = [](const std::string& name) { return name.substr(0, name.rfind('.') + 1); };
  const std::string layer = layer_of(slices.back().name);
  for (const NamedSlice& slice : slices) {
    if (slice.name == layer + "weight" && slice.shape.rank() == 2) return layer;
  }
  return "";
}

// A safetensors file with our names. A head that is missing there, or has other extents, keeps what
// `parameters` has.
std::vector<std::string> read_file(const std::string& path,
                                   const std::vector<NamedSlice>& slices,
                                   float* parameters) {
  const SafetensorsFile file(path);
  ShapeByName found = shapes_of(file), expected = shapes_in_files(slices);
  std::erase_if(found, [](const auto& tensor) { return is_bookkeeping(tensor.first); });
  const std::string head = head_of(slices);
  const auto of_head = [&](const auto& tensor) {
    return !head.empty() && tensor.first.starts_with(head);
  };
  const auto only_head = [&](ShapeByName shapes) {
    std::erase_if(shapes, [&](const auto& tensor) { return !of_head(tensor); });
    return shapes;
  };
  const std::vector<std::string> other = list_mismatches(only_head(found), only_head(expected));
  std::vector<NamedSlice> read = slices;
  std::vector<std::string> notes;
  if (!other.empty()) {
    std::erase_if(found, of_head);
    std::erase_if(expected, of_head);
    std::erase_if(read, [&](const NamedSlice& slice) { return slice.name.starts_with(head); });
    notes.push_back(fmt::format("{}: the layer {} is new, with initial weights: {}",
                                path,
                                head.substr(0, head.size() - 1),
                                other.front()));
  }
  check_match(found, expected, path);
  read_tensors(
      file, read, [](const std::string& name) { return name; }, parameters);
  return notes;
}

}  // namespace

void check_weights_path(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    if (huggingface::is_model_folder(path)) return;
    throw CheckpointError(
        "{}: is a folder without a config.json; allowed: a safetensors file, or a folder as Hugging "
        "Face's save_pretrained writes it",
        path);
  }
  for (const char* end : {".pt", ".pth", ".bin", ".ckpt", ".h5", ".msgpack"}) {
    if (path.ends_with(end))
      throw CheckpointError(
          "{}: files with {} are read by Python alone; allowed: a safetensors file, which "
          "safetensors.torch.save_file(state_dict, path) writes, or a folder of save_pretrained",
          path,
          end);
  }
}

std::vector<std::string> read_initial_weights(const RunConfig& config,
                                              const std::vector<NamedSlice>& slices,
                                              float* parameters) {
  const std::string& from = config.train.init_from;
  if (from.empty()) return {};
  check_weights_path(from);
  if (huggingface::is_model_folder(from))
    return huggingface::read_weights(from, config.model, slices, parameters);
  return read_file(from, slices, parameters);
}

}  // namespace lockstep
