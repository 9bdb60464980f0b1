#pragma once
// Models and weights in the folders that Hugging Face's save_pretrained writes and from_pretrained
// reads. Errors are ConfigError (in config.json), CheckpointError (in the tensors) or IoError.

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/tokenizer_files.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/checkpoint/format/safetensors.h"
#include "runtime/checkpoint/format/state.h"
#include "runtime/config/parse.h"
#include "runtime/config/preprocessing.h"
#include "runtime/config/run_config.h"

namespace lockstep::huggingface {

// Whether `path` is a folder with a config.json.
bool is_model_folder(const std::filesystem::path& path);

// The end of a message about `path`, which is no folder with a config.json: what it is, and what to
// give instead. It begins with a verb: "is a PEFT adapter ...; set ...".
std::string what_it_is_instead(const std::filesystem::path& path);

// The end of a message about a path that does not exist, if it looks like the name of a model on
// the hub (gpt2, org/name) or an address.
std::string download_remedy(const std::string& path);

// The model that config.json describes. Rejects an unknown model_type, fields with values that this
// runtime does not support, and unknown fields.
ModelConfig read_model(const std::filesystem::path& folder);

// The same for model.from, with the folder's normalisation of images: see ModelSource. Unless
// `task_given`, rejects a folder whose task is not supported.
config::FoundModel find_model(const std::filesystem::path& folder, bool task_given);

// Sentences for the log about the folder and a run's data: whether their names of classes differ,
// and how both normalise images. Throws ConfigError.
std::vector<std::string> notes_of_data(const std::filesystem::path& folder,
                                       const std::vector<std::string>& class_names,
                                       const config::ImageNormalisation& images);

// Fills the parameters of `model` that `slices` name in `flat` (fp32, at the slices' offsets) from
// the folder's tensors; F16 and BF16 are converted. A head that the folder lacks keeps its values
// in `flat`, and so does the classifier if config.json has another number of classes. The returned
// notes list such heads, tensors that were skipped, fields of config.json that differ from the
// model's, and differences to other files of the folder. Rejects tensors that are missing, unknown
// or of other extents, and values that are not finite.
checkpoint::WeightsRead read_weights(const std::filesystem::path& folder,
                                     const ModelConfig& model,
                                     const std::vector<checkpoint::NamedSlice>& slices,
                                     float* flat);

// The same from a single safetensors file with Hugging Face's names, without a config.json.
checkpoint::WeightsRead read_weights_file(const std::filesystem::path& file,
                                          const ModelConfig& model,
                                          const std::vector<checkpoint::NamedSlice>& slices,
                                          float* flat);

// The tokens that end a text, from generation_config.json or else config.json; empty if neither has
// them.
std::vector<int32_t> end_tokens(const std::filesystem::path& folder);

// A function that returns the extents of a tensor of `model` in a folder or file: (rows, ...), or
// (outputs, inputs, height, width) for convolutions; none if there is no such tensor. `slices` are
// the model's tensors, by whose names it recognises what wrappers add to names.
std::function<std::optional<std::vector<int64_t>>(const std::string& name)> extents_in(
    const std::filesystem::path& path,
    const ModelConfig& model,
    const std::vector<checkpoint::NamedSlice>& slices);

// Whether the model can be read from and written to Hugging Face folders.
bool has_family(const ModelConfig& model);

struct FolderOptions {
  // A folder from which the other fields of config.json are taken and the files of the tokenizer
  // are copied; empty: none.
  std::filesystem::path like = {};
  // By default the dtype of `like`, if it holds every value exactly, otherwise F32.
  std::optional<checkpoint::FileDtype> dtype = std::nullopt;
  std::map<std::string, std::string> metadata = {};  // of model.safetensors
  // The run's data, and its names of the classes; empty: the names of `like`.
  DataConfig data = {};
  std::vector<std::string> class_names = {};
  // How the run made its images. None: unknown; then only the normalisation of `data` is written.
  std::optional<config::ImageInputs> images = std::nullopt;
  // The files of the run's tokenizer, if `like` has none.
  std::vector<TokenizerFile> tokenizer = {};
};

struct WrittenFolder {
  checkpoint::WrittenFile weights;
  checkpoint::FileDtype dtype = checkpoint::FileDtype::kF32;
  std::vector<std::string> copied;  // files and fields of `like`, some with a remark, for the log
};

// Creates the folder `out` with config.json and model.safetensors, as from_pretrained reads them.
// The folder appears complete or not at all. Rejects an `out` that exists, and a model that Hugging
// Face folders do not support (ConfigError).
WrittenFolder write_folder(const std::filesystem::path& out,
                           const ModelConfig& model,
                           const std::vector<checkpoint::NamedSlice>& slices,
                           const float* flat,
                           const FolderOptions& options);

// Like what_it_is_instead() of folder.h, for a folder with a config.json, but without weights that
// are read here.
std::string weights_instead(const std::filesystem::path& folder);

// Lets `fill` write into a temporary folder beside `out`, then renames it to `out`. Throws
// CheckpointError if `out` exists, IoError if writing fails.
checkpoint::WrittenFile make_folder(
    const std::filesystem::path& out,
    const std::function<checkpoint::WrittenFile(const std::filesystem::path& folder)>& fill);

}  // namespace lockstep::huggingface
