#include "models/huggingface/tensor_files.h"

#include "models/huggingface/folder.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/file_kind.h"
#include "runtime/base/json.h"
#include "runtime/base/text.h"
#include "runtime/checkpoint/format/wrapped_names.h"

namespace lockstep::huggingface {
namespace fs = std::filesystem;
namespace {

constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = size_t{64} << 20;

Json parse_index(const fs::path& path) {
  const std::string text = read_file(path, kMaxIndexBytes);
  if (file_kind(text)) throw CheckpointError("{}: {}", path.string(), is_not(text, "a JSON file"));
  try {
    return Json::parse(text);
  } catch (const JsonError& error) {
    throw CheckpointError("{}: {}", path.string(), error.what());
  }
}

bool is_file_name(const std::string& text) {
  return !text.empty() && text != "." && text != ".." && fs::path(text).filename() == text;
}

// The file of each tensor.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const Json index = parse_index(path);
  const Json* const listed = index.find("weight_map");
  if (listed == nullptr || listed->kind() != Json::Kind::kObject)
    throw CheckpointError(
        "{}: has no object weight_map, which maps each tensor to the name of its file",
        path.string());
  std::map<std::string, std::string> file_of;
  for (const std::string& name : listed->names()) {
    const Json& file = listed->at(name);
    if (!file.is_string() || !is_file_name(file.get<std::string>()))
      throw CheckpointError(
          "{}: field weight_map: the file of {} is {}; allowed: the name of a file in that folder",
          path.string(),
          quote_name(name),
          file.is_string() ? quote_name(file.get<std::string>()) : file.dump({.ascii = true}));
    file_of[name] = file.get<std::string>();
  }
  return file_of;
}

}  // namespace

TensorFiles::TensorFiles(const fs::path& folder) {
  const bool is_file = !is_folder(folder);
  if (is_file || is_there(folder / kOneFile)) {
    const checkpoint::SafetensorsFile& file =
        files_.emplace_back(is_file ? folder : folder / kOneFile);
    for (const checkpoint::SafetensorsEntry& entry : file.header().entries)
      tensors_[entry.name] = {&file, &entry};
    return;
  }
  if (!is_there(folder / kIndex))
    throw CheckpointError("{}: {}", folder.string(), weights_instead(folder));
  const auto file_of = read_index(folder / kIndex);
  std::map<std::string, size_t> number_of;
  for (const auto& [name, file] : file_of) {
    if (!number_of.emplace(file, files_.size()).second) continue;
    if (!is_there(folder / file))
      throw CheckpointError("{}: shard {} is missing, which {} lists for tensor '{}'",
                            folder.string(),
                            file,
                            kIndex,
                            name);
    files_.emplace_back(folder / file);
  }
  for (const auto& [name, shard] : file_of) {
    const checkpoint::SafetensorsFile& file = files_[number_of.at(shard)];
    const checkpoint::SafetensorsEntry* entry = file.find(name);
    if (entry == nullptr)
      throw CheckpointError(
          "{}: there is no tensor '{}', although {} lists it", file.path(), name, kIndex);
    tensors_[name] = {&file, entry};
  }
}

std::string TensorFiles::remove_wrappers(const std::set<std::string>& known,
                                         const std::string& origin) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  const checkpoint::PlainNames plain = checkpoint::plain_names(names, known, origin);
  std::map<std::string, Tensor> renamed;
  for (const auto& [name, tensor] : tensors_) renamed[plain.of.at(name)] = tensor;
  tensors_ = std::move(renamed);
  return plain.note;
}

const TensorFiles::Tensor* TensorFiles::find(const std::string& name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

void read(const TensorFiles::Tensor& tensor, float* out) {
  tensor.file->read_weights(*tensor.entry, out);
}

}  // namespace lockstep::huggingface
