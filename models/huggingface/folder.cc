#include "models/huggingface/folder.h"

#include <unistd.h>

#include <memory>

#include "models/huggingface/family.h"
#include "models/huggingface/labels.h"
#include "models/huggingface/open_config.h"
#include "models/huggingface/preprocessor.h"
#include "models/huggingface/tensor_files.h"
#include "models/huggingface/weights.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/config/differences.h"

namespace lockstep::huggingface {
namespace fs = std::filesystem;
namespace {

// Whether the field is the number of classes, which the folder leaves to the data.
bool is_left_open(const config::FieldChange& field) {
  return field.path.ends_with(".classes") && field.before == "0";
}

// Creates a temporary folder and removes it, unless become() has renamed it.
class Unfinished {
 public:
  explicit Unfinished(const fs::path& out)
      : path_(fmt::format("{}.{}.tmp", out.string(), ::getpid())) {
    for (const fs::path& path : {out, path_}) {
      if (fs::exists(path))
        throw CheckpointError("{}: exists already; choose a new folder", path.string());
    }
    fs::create_directories(path_);
  }
  ~Unfinished() {
    std::error_code ignored;
    if (!done_) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  void become(const fs::path& out) {
    fs::rename(path_, out);
    done_ = true;
  }

 private:
  const fs::path path_;
  bool done_ = false;
};

fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

bool is_model_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path / kConfigFile, ignored);
}

ModelConfig read_model(const fs::path& folder) {
  const OpenConfig config(folder);
  ConfigFields fields(config.json, config.origin);
  ModelConfig model = config.family->read(fields);
  fields.require_known(config::name_of(model));
  config.family->read_other_files(folder, model);
  return model;
}

config::FoundModel find_model(const fs::path& folder, bool task_given) {
  config::FoundModel found = {.model = read_model(folder), .images = {}};
  const OpenConfig config(folder);
  ConfigFields fields(config.json, config.origin);
  if (!task_given) config.family->check_task(fields);
  found.images = config.family->read_images(folder);
  return found;
}

std::vector<std::string> notes_of_data(const fs::path& folder,
                                       const std::vector<std::string>& class_names,
                                       const config::ImageNormalisation& images) {
  const OpenConfig config(folder);
  std::vector<std::string> notes = {note_of_labels(config.json, config.origin, class_names)};
  if (!config.family->read_images(folder).mean.empty())
    notes.push_back(note_of_normalisation(folder, images));
  std::erase(notes, "");
  return notes;
}

checkpoint::WeightsRead read_weights(const fs::path& folder,
                                     const ModelConfig& model,
                                     const std::vector<checkpoint::NamedSlice>& slices,
                                     float* flat) {
  const OpenConfig config(folder);
  RunConfig theirs, ours;
  theirs.model = read_model(folder);
  ours.model = model;
  if (theirs.model.index() != model.index())
    throw CheckpointError(
        "{0}: holds a model of section {1}; the config has section {2}; describe it with "
        "model {{ from: \"{0}\" }} or model {{ {1} {{ ... }} }}",
        folder.string(),
        config::name_of(theirs.model),
        config::name_of(model));
  checkpoint::WeightsRead read = fill_weights(
      *config.family, TensorFiles(folder), folder.string(), theirs.model, model, slices, flat);
  for (const config::FieldChange& field : config::differences(theirs, ours)) {
    if (is_left_open(field)) continue;
    read.notes.push_back(fmt::format("{}: {} is {} in this run; {} has {}",
                                     folder.string(),
                                     field.path,
                                     field.now,
                                     kConfigFile,
                                     field.before));
  }
  for (const std::string& note : config.family->notes_on_other_files(folder, model))
    read.notes.push_back(note);
  return read;
}

checkpoint::WeightsRead read_weights_file(const fs::path& file,
                                          const ModelConfig& model,
                                          const std::vector<checkpoint::NamedSlice>& slices,
                                          float* flat) {
  return fill_weights(
      family_to_use(model), TensorFiles(file), file.string(), model, model, slices, flat);
}

std::vector<int32_t> end_tokens(const fs::path& folder) {
  for (const char* name : {"generation_config.json", kConfigFile}) {
    if (!is_file(folder / name)) continue;
    const Json json = read_json(folder / name);
    const Json* ends = json.find("eos_token_id");
    if (ends == nullptr || ends->is_null()) continue;
    try {
      if (ends->kind() != Json::Kind::kArray) return {ends->get<int>()};
      std::vector<int32_t> all;
      for (const Json& end : *ends) all.push_back(end.get<int>());
      return all;
    } catch (const JsonError& error) {
      throw ConfigError("{}: field eos_token_id: {}", (folder / name).string(), error.what());
    }
  }
  return {};
}

std::function<std::optional<std::vector<int64_t>>(const std::string& name)> extents_in(
    const fs::path& path,
    const ModelConfig& model,
    const std::vector<checkpoint::NamedSlice>& slices) {
  const Family& family = family_to_use(model);
  const auto files = std::make_shared<TensorFiles>(path);
  files->remove_wrappers(names_in_folders(family, model, slices), path.string());
  return [&family, files, model](const std::string& name) {
    return extents_of(family, *files, model, name);
  };
}

bool has_family(const ModelConfig& model) { return family_of(model) != nullptr; }

checkpoint::WrittenFile make_folder(
    const fs::path& out,
    const std::function<checkpoint::WrittenFile(const fs::path& folder)>& fill) {
  try {
    const fs::path target = without_slash(out);
    Unfinished folder(target);
    checkpoint::WrittenFile written = fill(folder.path());
    folder.become(target);
    return written;
  } catch (const fs::filesystem_error& error) {
    throw IoError("write", error.path1().string(), error.code().value());
  }
}

}  // namespace lockstep::huggingface
