#pragma once
// What is to be known of a family of models to read it from Hugging Face's folders and to write it
// there: README.md tells how to add one.

#include <filesystem>
#include <string>
#include <vector>

#include "models/huggingface/config_fields.h"
#include "runtime/checkpoint/state.h"
#include "runtime/config/image_normalisation.h"
#include "runtime/config/run_config.h"

namespace lockstep::huggingface {

struct FolderOptions;

// A tensor of a folder, which holds rows of a tensor of ours: of (rows, ...) or (rows).
struct TensorPart {
  std::string name;
  int64_t rows = 0;         // 0: all of them, or their equal part
  int64_t equal_parts = 1;  // of how many the tensor of ours consists
  int leading_ones = 0;     // the folder has so many extents of 1 before ours
  bool transposed = false;  // the folder has (columns, rows)
  int64_t stored_rows = 0;  // that a folder of this model has, of which the first are ours; 0: rows
};

class Family {
 public:
  virtual ~Family() = default;

  // The model_type values that config.json may have.
  virtual std::vector<std::string> types() const = 0;
  // The section of the config: "llama".
  virtual const char* section() const = 0;
  // Whether such folders have this model, of the config's sections.
  virtual bool has(const ModelConfig& model) const { return name_of(model) == section(); }
  // Begins the names of what lies below a head, and is left out by folders without a head:
  // "model.".
  virtual std::string base_prefix(const ModelConfig& model) const = 0;

  // Throws ConfigError for values that the family here does not have.
  virtual ModelConfig read(ConfigFields& fields) const = 0;
  // Throws ConfigError where the folder is for a task that is not here and that `read` gives another
  // one for. Asked where no config says the task.
  virtual void check_task(ConfigFields& /*fields*/) const {}
  // Takes what other files of the folder say of the model that `read` gave. Throws ConfigError.
  virtual void read_others(const std::filesystem::path& /*folder*/, ModelConfig& /*model*/) const {}
  // What a person should know of those files, in sentences, where `model` is to be trained.
  virtual std::vector<std::string> notes_of_others(const std::filesystem::path& /*folder*/,
                                                   const ModelConfig& /*model*/) const {
    return {};
  }
  // Sets the fields of `config`, which may have others. `slices` are the model's tensors. Throws
  // ConfigError for what no such folder can say.
  virtual void write(const ModelConfig& model,
                     const std::vector<NamedSlice>& slices,
                     Json& config) const = 0;
  // How the folder says that images are normalised; empty: it does not. Throws ConfigError.
  virtual ImageNormalisation read_images(const std::filesystem::path& /*folder*/) const {
    return {};
  }
  // Writes further files of the model into the folder, whose config.json is `config`. Throws
  // ConfigError, IoError.
  virtual void write_others(const ModelConfig& /*model*/,
                            const FolderOptions& /*options*/,
                            const Json& /*config*/,
                            const std::filesystem::path& /*folder*/) const {}

  // What the folder has of our tensor of that name, in the order of rows.
  virtual std::vector<TensorPart> parts(const ModelConfig& model,
                                        const std::string& name) const = 0;
  // Whether our tensor is of a head, which folders may lack as a whole: it is new then.
  virtual bool is_head(const std::string& name) const = 0;
  // Whether our tensor has a row for each class: a folder for another number of them has it of other
  // extents, and it is new then.
  virtual bool is_of_classes(const std::string& /*name*/) const { return false; }
  // Whether a tensor of the folder is no weight, or is computed from others.
  virtual bool is_no_weight(const std::string& /*name*/) const { return false; }
  // What older folders call the tensor that newer ones call so; empty: the same.
  virtual std::string older_name(const std::string& /*name*/) const { return ""; }
  // What PEFT calls the tensor where transformers 5 has another name of its layer than the files;
  // empty: the same.
  virtual std::string name_in_memory(const std::string& /*name*/) const { return ""; }
  // The tensor of the body that is the output matrix as well; empty: none.
  virtual std::string tied_weight(const ModelConfig& /*model*/) const { return ""; }
  // A tensor of the folder that must be equal to another one of it where it is there: the tied
  // head, and what it is tied to. Empty: none.
  virtual std::string tied_name(const ModelConfig& /*model*/, const std::string& /*name*/) const {
    return "";
  }
};

// Of the model_type of a config.json; null where none reads it.
const Family* family_of_type(const std::string& type);
// Of a model of ours; null where Hugging Face has none like it.
const Family* family_of(const ModelConfig& model);
// The same; throws ConfigError where Hugging Face has none.
const Family& family_to_use(const ModelConfig& model);
// The model_type values of a family, and of all: "gpt2, llama, mistral".
std::string types_text(const Family& family);
std::string known_types();

// The families, each in its own file.
const Family& bert_family();
const Family& gpt2_family();
const Family& gptj_family();
const Family& llama_family();
const Family& vit_family();

bool ends_with_any(const std::string& name, std::initializer_list<const char*> ends);

// The fields that say how rotary positions are computed.
struct RotaryFields {
  double theta = 10000;
  LlamaConfig::RopeScaling scaling = LlamaConfig::RopeScaling::kNoScaling;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_context = 8192;
};
// From rope_parameters, or rope_theta and rope_scaling; `context` stands for
// original_max_position_embeddings where that is missing.
RotaryFields read_rotary(ConfigFields& fields, int64_t context);
void write_rotary(const RotaryFields& rotary, Json& config);

}  // namespace lockstep::huggingface
