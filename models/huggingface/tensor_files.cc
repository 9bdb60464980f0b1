#include "models/huggingface/tensor_files.h"

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"

namespace lockstep::huggingface {
namespace fs = std::filesystem;
namespace {

constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr size_t kMostIndexBytes = size_t{64} << 20;

// Which file has which tensor.
std::map<std::string, std::string> read_index(const fs::path& path) {
  std::map<std::string, std::string> file_of;
  try {
    const Json index = Json::parse(read_file(path, kMostIndexBytes));
    const Json& listed = index.at("weight_map");
    for (const std::string& name : listed.names())
      file_of[name] = listed.at(name).get<std::string>();
  } catch (const JsonError& error) {
    throw CheckpointError("{}: {}", path.string(), error.what());
  }
  for (const auto& [name, file] : file_of) {
    if (file.empty() || fs::path(file).filename() != file)
      throw CheckpointError(
          "{}: tensor '{}' is said to be in '{}'; allowed: the name of a file in "
          "that folder",
          path.string(),
          name,
          file);
  }
  return file_of;
}

[[noreturn]] void refuse_folder(const fs::path& folder) {
  for (const char* other : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (fs::exists(folder / other))
      throw CheckpointError(
          "{}: has {}, which only Python reads, but no {}; write one with transformers: "
          "AutoModel.from_pretrained(...).save_pretrained(...)",
          folder.string(),
          other,
          kOneFile);
  }
  throw CheckpointError(
      "{}: there is no {} and no {} in that folder", folder.string(), kOneFile, kIndex);
}

}  // namespace

TensorFiles::TensorFiles(const fs::path& folder) {
  const bool is_file = !fs::is_directory(folder);
  if (is_file || fs::exists(folder / kOneFile)) {
    const SafetensorsFile& file = files_.emplace_back(is_file ? folder : folder / kOneFile);
    for (const SafetensorsEntry& entry : file.header().entries)
      tensors_[entry.name] = {&file, &entry};
    return;
  }
  if (!fs::exists(folder / kIndex)) refuse_folder(folder);
  const auto file_of = read_index(folder / kIndex);
  std::map<std::string, size_t> number_of;
  for (const auto& [name, file] : file_of) {
    if (!number_of.emplace(file, files_.size()).second) continue;
    if (!fs::exists(folder / file))
      throw CheckpointError("{}: shard {} is missing, which {} names for tensor '{}'",
                            folder.string(),
                            file,
                            kIndex,
                            name);
    files_.emplace_back(folder / file);
  }
  for (const auto& [name, shard] : file_of) {
    const SafetensorsFile& file = files_[number_of.at(shard)];
    const SafetensorsEntry* entry = file.find(name);
    if (entry == nullptr)
      throw CheckpointError(
          "{}: there is no tensor '{}', which {} says it has", file.path(), name, kIndex);
    tensors_[name] = {&file, entry};
  }
}

const TensorFiles::Tensor* TensorFiles::find(const std::string& name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

void read(const TensorFiles::Tensor& tensor, float* out) {
  tensor.file->read_f32(*tensor.entry, true, out);
}

}  // namespace lockstep::huggingface
