#pragma once
// How to read a family of models from Hugging Face folders and to write it there. README.md
// describes how to add a family.

#include <filesystem>
#include <string>
#include <vector>

#include "models/huggingface/config_fields.h"
#include "runtime/checkpoint/format/state.h"
#include "runtime/config/image_normalisation.h"
#include "runtime/config/run_config.h"

namespace lockstep::huggingface {

struct FolderOptions;

// A tensor of a folder. It holds all or some rows of a tensor of the model, (rows, ...) or (rows).
struct TensorPart {
  std::string name;
  int64_t rows = 0;         // rows of the model's tensor; 0: its rows / equal_parts
  int64_t equal_parts = 1;  // into how many equal parts the model's tensor is split
  int leading_ones = 0;     // how many extents of 1 precede the others in the folder
  bool transposed = false;  // the folder has (columns, rows)
  int64_t stored_rows = 0;  // rows in the folder, of which the model has the first; 0: the same
};

class Family {
 public:
  virtual ~Family() = default;

  // The model_type values that config.json may have.
  virtual std::vector<std::string> types() const = 0;
  // The name of the config's model section: "llama".
  virtual const char* section() const = 0;
  // Whether the folders of this family can hold `model`.
  virtual bool has(const ModelConfig& model) const { return config::name_of(model) == section(); }
  // The prefix of the names of the body's tensors, "model.". Folders without a head leave it out.
  virtual std::string base_prefix(const ModelConfig& model) const = 0;

  // Throws ConfigError for values that this runtime does not support.
  virtual ModelConfig read(ConfigFields& fields) const = 0;
  // Throws ConfigError if the folder has a task that is not supported and for which read() chose
  // another one. Called only if the config does not set the task.
  virtual void check_task(ConfigFields& /*fields*/) const {}
  // Updates the model that `read` returned with the folder's other files. Throws ConfigError.
  virtual void read_other_files(const std::filesystem::path& /*folder*/,
                                ModelConfig& /*model*/) const {}
  // Differences between those files and the `model` to be trained, as sentences for the log.
  virtual std::vector<std::string> notes_on_other_files(const std::filesystem::path& /*folder*/,
                                                        const ModelConfig& /*model*/) const {
    return {};
  }
  // Sets the family's fields in `config`; other fields stay. `slices` are the model's tensors.
  // Throws ConfigError if such a folder cannot describe the model.
  virtual void write(const ModelConfig& model,
                     const std::vector<checkpoint::NamedSlice>& slices,
                     Json& config) const = 0;
  // How the folder normalises images; empty if it does not specify that. Throws ConfigError.
  virtual config::ImageNormalisation read_images(const std::filesystem::path& /*folder*/) const {
    return {};
  }
  // Writes further files of the model into the folder, whose config.json is `config`. Throws
  // ConfigError, IoError.
  virtual void write_other_files(const ModelConfig& /*model*/,
                                 const FolderOptions& /*options*/,
                                 const Json& /*config*/,
                                 const std::filesystem::path& /*folder*/) const {}

  // The folder's tensors that form the model's tensor `name`, in the order of its rows.
  virtual std::vector<TensorPart> parts(const ModelConfig& model,
                                        const std::string& name) const = 0;
  // Whether the model's tensor belongs to a head. If a folder lacks the head, it is initialised
  // from scratch.
  virtual bool is_head(const std::string& name) const = 0;
  // Whether the model's tensor has a row for each class. If the folder has another number of
  // classes, the tensor is initialised from scratch.
  virtual bool has_row_per_class(const std::string& /*name*/) const { return false; }
  // Whether reading skips the folder's tensor: it is not a weight, is computed from others, or is
  // of a layer that the model does not use.
  virtual bool is_ignored_tensor(const std::string& /*name*/) const { return false; }
  // The name of this tensor in older folders; empty: the same.
  virtual std::string older_name(const std::string& /*name*/) const { return ""; }
  // PEFT's name of the tensor, if transformers 5 names its layer differently in memory than in
  // files; empty: the same.
  virtual std::string name_in_memory(const std::string& /*name*/) const { return ""; }
  // The tensor of the body that is also the output matrix; empty: none.
  virtual std::string tied_weight(const ModelConfig& /*model*/) const { return ""; }
  // If `name` is a folder's tied head, the tensor that it must be equal to. Empty: not tied.
  virtual std::string tied_name(const ModelConfig& /*model*/, const std::string& /*name*/) const {
    return "";
  }
};

// The family that reads this model_type of config.json; null if there is none.
const Family* family_of_type(const std::string& type);
// The family that writes this model; null if there is none.
const Family* family_of(const ModelConfig& model);
// The same, but throws ConfigError if there is none.
const Family& family_to_use(const ModelConfig& model);
// The model_type values of a family, and of all: "gpt2, llama, mistral".
std::string types_text(const Family& family);
std::string known_types();

// The families.
const Family& bert_family();
const Family& gpt2_family();
const Family& gptj_family();
const Family& llama_family();
const Family& vit_family();

// The slice of a tensor; null if there is none.
const checkpoint::NamedSlice* find_slice(const std::vector<checkpoint::NamedSlice>& slices,
                                         const std::string& name);
// The same, but throws CheckpointError if there is none.
const checkpoint::NamedSlice& slice_named(const std::vector<checkpoint::NamedSlice>& slices,
                                          const std::string& name);
// If the model's tensor `name` has `fused` in its name: its parts `into`, whose names replace that.
// Parts without `rows` are equal. Otherwise empty.
std::vector<TensorPart> split_tensor(const std::string& name,
                                     const std::string& fused,
                                     std::vector<TensorPart> into);
bool ends_with_any(const std::string& name, std::initializer_list<const char*> ends);

}  // namespace lockstep::huggingface
