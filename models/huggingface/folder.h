#pragma once
// Models and weights in folders as Hugging Face's save_pretrained writes them and from_pretrained
// reads them. Errors are ConfigError (of config.json), CheckpointError (of the tensors) or IoError.

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/reader.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/state.h"
#include "runtime/config/parse.h"
#include "runtime/config/run_config.h"

namespace lockstep::huggingface {

// Whether `path` is a folder with a config.json.
bool is_model_folder(const std::filesystem::path& path);

// The model that config.json describes. Refuses a model_type that no family here reads, fields with
// values that the family does not have, and fields that it does not know.
ModelConfig read_model(const std::filesystem::path& folder);

// The same for model.from, with what the folder says of images: see ModelSource.
FoundModel find_model(const std::filesystem::path& folder, bool task_given);

// What a person should know of the folder where a run learns from such data, in sentences: classes
// that it names otherwise, and how it normalises images. Throws ConfigError.
std::vector<std::string> notes_of_data(const std::filesystem::path& folder,
                                       const std::vector<std::string>& class_names,
                                       const ImageNormalisation& images);

// Fills the parameters of `model` that `slices` name in `flat` (fp32, at the slices' offsets) from
// the folder's tensors; F16 and BF16 are converted. A head that the folder has nothing of keeps what
// `flat` has, and so does the layer of the classes where config.json has another number of them.
// Notes: such heads, tensors that are left out, and fields of config.json that differ from the
// model's, and what other files of the folder say. Refuses tensors that are missing, of other extents
// or unknown, and values that are not finite.
WeightsRead read_weights(const std::filesystem::path& folder,
                         const ModelConfig& model,
                         const std::vector<NamedSlice>& slices,
                         float* flat);

// The same from a safetensors file with Hugging Face's names that has no config.json.
WeightsRead read_weights_file(const std::filesystem::path& file,
                              const ModelConfig& model,
                              const std::vector<NamedSlice>& slices,
                              float* flat);

// The tokens that end a text, as generation_config.json or config.json say; none where they do not.
std::vector<int32_t> end_tokens(const std::filesystem::path& folder);

// The extents of our tensors in a folder or file, by our names: (rows, ...), of convolutions (outputs,
// inputs, height, width); none where it has no such tensor.
std::function<std::optional<std::vector<int64_t>>(const std::string& name)> extents_in(
    const std::filesystem::path& path, const ModelConfig& model);

// Whether Hugging Face's folders have models of this section.
bool has_family(const ModelConfig& model);

struct FolderOptions {
  // A folder whose config.json keeps its other fields, and whose tokenizer's files are copied; empty:
  // none.
  std::filesystem::path like = {};
  // None: that of `like` where it holds every value exactly, else F32.
  std::optional<FileDtype> dtype = std::nullopt;
  std::map<std::string, std::string> metadata = {};  // of model.safetensors
  // What the run learned from, and what that calls the classes; none: as `like` does.
  DataConfig data = {};
  std::vector<std::string> class_names = {};
};

struct WrittenFolder {
  WrittenFile weights;
  FileDtype dtype = FileDtype::kF32;
  std::vector<std::string> copied;  // names of files and fields, of which some say more
};

// Makes the folder `out` with config.json and model.safetensors, as from_pretrained reads them.
// Appears whole or not at all; refuses an `out` that exists, and a model that Hugging Face has
// nothing like (ConfigError).
WrittenFolder write_folder(const std::filesystem::path& out,
                           const ModelConfig& model,
                           const std::vector<NamedSlice>& slices,
                           const float* flat,
                           const FolderOptions& options);

}  // namespace lockstep::huggingface
