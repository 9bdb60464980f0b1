#include "models/huggingface/peft.h"

#include <list>
#include <map>
#include <set>

#include "models/huggingface/family.h"
#include "models/huggingface/folder.h"
#include "models/huggingface/lora_layers.h"
#include "models/huggingface/tensor_files.h"
#include "models/huggingface/weights.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/checkpoint/format/match.h"
#include "runtime/config/differences.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/lora.h"

namespace lockstep::huggingface {
namespace fs = std::filesystem;
namespace {

constexpr const char* kAdapterModel = "adapter_model.safetensors";
constexpr const char* kPrefix = "base_model.model.";

// An A or B matrix of a module: rows [first, first + rows) of a slice.
struct Matrix {
  std::string name;  // in the file
  const checkpoint::NamedSlice* slice;
  int64_t first, rows;

  int64_t columns() const { return slice->shape[1]; }
  float* in(float* flat) const { return flat + slice->offset + first * columns(); }
};

// All matrices of the LoRA, and the names of its modules.
struct Adapter {
  std::vector<Matrix> matrices;
  std::set<std::string> modules;
};

Adapter adapter_of(const RunConfig& config, const std::vector<checkpoint::NamedSlice>& slices) {
  const LoraConfig& lora = config.adapter.lora.value();
  const config::Pattern pattern("adapter.lora.match", lora.match);
  Adapter adapter;
  for (const checkpoint::NamedSlice& a : slices) {
    if (!a.name.ends_with(graph::kLoraA)) continue;
    const std::string layer = a.name.substr(0, a.name.size() - std::string(graph::kLoraA).size());
    const checkpoint::NamedSlice& b = slice_named(slices, layer + graph::kLoraB);
    const checkpoint::NamedSlice& weight = slice_named(slices, layer + ".weight");
    int64_t a_row = 0, b_row = 0;
    for (const LoraModule& module :
         matching_modules(config.model, weight.name, weight.shape[0], pattern)) {
      const std::string name = kPrefix + module.name;
      adapter.modules.insert(module.name);
      adapter.matrices.push_back({name + ".lora_A.weight", &a, a_row, lora.rank});
      adapter.matrices.push_back({name + ".lora_B.weight", &b, b_row, module.outputs.rows});
      a_row += lora.rank;
      b_row += module.outputs.rows;
    }
  }
  return adapter;
}

// "classifier" for "classifier.weight".
std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

// The slices that train beside the LoRA, with all other slices of their layers: PEFT saves modules
// in full.
std::vector<const checkpoint::NamedSlice*> saved_in_full(
    const RunConfig& config, const std::vector<checkpoint::NamedSlice>& slices) {
  const LoraConfig& lora = config.adapter.lora.value();
  if (lora.train_also.empty()) return {};
  const config::Pattern also("adapter.lora.train_also", lora.train_also);
  std::set<std::string> layers;
  for (const checkpoint::NamedSlice& slice : slices)
    if (!graph::is_lora(slice.name) && also.found_in(slice.name))
      layers.insert(module_of(slice.name));
  std::vector<const checkpoint::NamedSlice*> saved;
  for (const checkpoint::NamedSlice& slice : slices)
    if (!graph::is_lora(slice.name) && layers.contains(module_of(slice.name)))
      saved.push_back(&slice);
  return saved;
}

// ---- Reading ----

// The folder's name of the tensor: as in files of models, or as in the memory of transformers 5,
// whose names PEFT saves.
std::string name_in(const TensorFiles& files, const Family* family, const std::string& name) {
  if (family == nullptr || files.find(name) != nullptr) return name;
  const std::string other = family->name_in_memory(name);
  return !other.empty() && files.find(other) != nullptr ? other : name;
}

// All names that tensors of the adapter's folder may have.
std::set<std::string> names_in_adapters(const Adapter& adapter,
                                        const Family* family,
                                        const RunConfig& config,
                                        const std::vector<checkpoint::NamedSlice>& slices) {
  std::set<std::string> names;
  const auto add = [&](const std::string& name) {
    names.insert(name);
    if (family != nullptr) names.insert(family->name_in_memory(name));
  };
  for (const Matrix& matrix : adapter.matrices) add(matrix.name);
  if (family == nullptr) return names;
  for (const checkpoint::NamedSlice& slice : base_slices(slices))
    for (const TensorPart& part : family->parts(config.model, slice.name)) add(kPrefix + part.name);
  return names;
}

// Rejects tensors that are missing, of other extents, or unknown. Optional ones may be missing, and
// every tensor may be present by both of its names.
void check_tensors(const TensorFiles& files,
                   const std::string& origin,
                   const Family* family,
                   checkpoint::ShapeByName expected,
                   const checkpoint::ShapeByName& optional) {
  checkpoint::ShapeByName present;
  for (const auto& [name, tensor] : files.tensors()) present[name] = tensor.entry->shape;
  for (const auto& [name, tensor] : files.tensors()) {
    const std::string other = family == nullptr ? "" : family->name_in_memory(name);
    if (!other.empty()) present.erase(other);
  }
  for (const auto& [name, shape] : optional)
    if (present.contains(name)) expected[name] = shape;
  checkpoint::refuse_mismatches(
      origin, checkpoint::list_mismatches(present, expected), "those of adapter.lora");
}

// Rejects a tensor of the folder that is a parameter of the model but is frozen by the config.
void refuse_frozen(const TensorFiles& files,
                   const std::string& origin,
                   const Family& family,
                   const RunConfig& config,
                   const std::vector<checkpoint::NamedSlice>& slices,
                   const checkpoint::ShapeByName& optional) {
  for (const checkpoint::NamedSlice& slice : base_slices(slices)) {
    for (const TensorPart& part : family.parts(config.model, slice.name)) {
      const std::string name = name_in(files, &family, kPrefix + part.name);
      if (files.find(name) == nullptr || optional.contains(name)) continue;
      config::refuse_value("adapter.lora.train_also",
                           in_quotes(config.adapter.lora->train_also),
                           "a pattern that also matches {}, because {} has {}",
                           slice.name,
                           origin,
                           quote_name(name));
    }
  }
}

fs::path tensors_of(const fs::path& folder) {
  constexpr const char* kPickledModel = "adapter_model.bin";
  const fs::path file = folder / kAdapterModel;
  if (!is_there(file) && is_there(folder / kPickledModel))
    throw CheckpointError(
        "{}: has {}, which only Python can read, but no {}; write one with PEFT: "
        "PeftModel.from_pretrained(...).save_pretrained(...)",
        folder.string(),
        kPickledModel,
        kAdapterModel);
  return file;
}

// PEFT would train only the embedding of a tied matrix.
void refuse_tied(const Family& family,
                 const ModelConfig& model,
                 const checkpoint::NamedSlice& slice) {
  if (slice.name != family.tied_weight(model)) return;
  throw ConfigError(
      "adapter.lora.train_also: trains {}, which is also the output matrix; a PEFT folder cannot "
      "hold it, because PEFT keeps the two apart. --format huggingface writes all weights",
      slice.name);
}

// ---- Writing ----

// Adds the names that transformers 5 has in memory. PEFT does not translate names, so a folder for
// transformers 4 and 5 must have everything by both names.
std::set<std::string> with_names_in_memory(const Family& family,
                                           const std::set<std::string>& modules) {
  std::set<std::string> all = modules;
  for (const std::string& module : modules) {
    const std::string other = family.name_in_memory(module + ".");
    if (!other.empty()) all.insert(other.substr(0, other.size() - 1));
  }
  return all;
}

// target_modules of adapter_config.json: the last component of the modules' names if no other
// module has the same one, otherwise full names.
std::set<std::string> targets_of(const RunConfig& config,
                                 const std::vector<checkpoint::NamedSlice>& slices,
                                 const std::set<std::string>& modules) {
  const auto last = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
  const std::set<std::string> all = with_names_in_memory(family_to_use(config.model), modules);
  std::set<std::string> short_names;
  for (const std::string& module : all) short_names.insert(last(module));
  for (const checkpoint::NamedSlice& slice : base_slices(slices)) {
    if (slice.shape.rank() != 2 || !slice.name.ends_with(".weight")) continue;
    for (const LoraModule& module : modules_of(config.model, slice.name, slice.shape[0])) {
      if (!modules.contains(module.name) && short_names.contains(last(module.name))) return all;
    }
  }
  return short_names;
}

// A layer cannot both have a LoRA and be saved in full: PEFT saves either the one or the other.
void refuse_layer_with_lora(const Adapter& adapter, const std::string& tensor) {
  if (!adapter.modules.contains(module_of(tensor))) return;
  throw ConfigError(
      "adapter.lora.train_also: trains {}, in a layer that has a LoRA; a PEFT folder cannot hold "
      "both. --format huggingface writes all weights",
      tensor);
}

// Adds each tensor a second time by its name in memory, if it has another one.
std::vector<checkpoint::F32Tensor> with_names_in_memory(
    const Family& family, std::vector<checkpoint::F32Tensor> tensors) {
  const size_t by_one_name = tensors.size();
  for (size_t i = 0; i < by_one_name; ++i) {
    const std::string other = family.name_in_memory(tensors[i].name);
    if (!other.empty()) tensors.push_back({other, tensors[i].shape, tensors[i].values});
  }
  return tensors;
}

bool is_transposed(const RunConfig& config, const std::vector<checkpoint::NamedSlice>& slices) {
  const Family& family = family_to_use(config.model);
  for (const checkpoint::NamedSlice& slice : slices) {
    if (!slice.name.ends_with(graph::kLoraA)) continue;
    const std::string layer =
        slice.name.substr(0, slice.name.size() - std::string(graph::kLoraA).size());
    if (family.parts(config.model, layer + ".weight").front().transposed) return true;
  }
  return false;
}

}  // namespace

std::string read_peft(const fs::path& folder,
                      const RunConfig& config,
                      const std::vector<checkpoint::NamedSlice>& slices,
                      float* flat) {
  check_peft_config(folder, config.adapter.lora.value());
  const Adapter adapter = adapter_of(config, slices);
  TensorFiles files(tensors_of(folder));
  const Family* const family = family_of(config.model);
  const std::string note =
      files.remove_wrappers(names_in_adapters(adapter, family, config, slices), folder.string());
  checkpoint::ShapeByName expected, optional;
  for (const Matrix& matrix : adapter.matrices)
    expected[name_in(files, family, matrix.name)] = {matrix.rows, matrix.columns()};
  std::vector<std::pair<const checkpoint::NamedSlice*, StoredPart>> saved_parts;
  if (family != nullptr) {
    for (const checkpoint::NamedSlice* slice : saved_in_full(config, slices)) {
      for (StoredPart& stored : stored_parts(*family, config.model, *slice)) {
        stored.part.name = name_in(files, family, kPrefix + stored.part.name);
        if (files.find(stored.part.name) != nullptr) refuse_tied(*family, config.model, *slice);
        optional[stored.part.name] = stored.extents;
        saved_parts.push_back({slice, stored});
      }
    }
    refuse_frozen(files, folder.string(), *family, config, slices, optional);
  }
  check_tensors(files, folder.string(), family, expected, optional);
  for (const Matrix& matrix : adapter.matrices)
    read(*files.find(name_in(files, family, matrix.name)), matrix.in(flat));
  for (const auto& [slice, stored] : saved_parts) {
    const TensorFiles::Tensor* const tensor = files.find(stored.part.name);
    if (tensor != nullptr) read_part(*tensor, *slice, stored, flat + slice->offset);
  }
  return note;
}

checkpoint::WrittenFile write_peft(const fs::path& out,
                                   const RunConfig& config,
                                   const std::vector<checkpoint::NamedSlice>& slices,
                                   const float* flat,
                                   bool is_causal_lm,
                                   const std::map<std::string, std::string>& metadata,
                                   const std::function<void(const fs::path&)>& add_files) {
  if (!config.adapter.lora)
    throw ConfigError(
        "--format: value is peft, which needs a run with adapter.lora; use another format");
  const LoraConfig& lora = *config.adapter.lora;
  const Family& family = family_to_use(config.model);
  const Adapter adapter = adapter_of(config, slices);
  std::vector<checkpoint::F32Tensor> tensors;
  std::list<std::vector<float>> copies;
  for (const Matrix& matrix : adapter.matrices)
    tensors.push_back({matrix.name,
                       {matrix.rows, matrix.columns()},
                       {matrix.in(const_cast<float*>(flat)),
                        static_cast<size_t>(matrix.rows * matrix.columns())}});
  PeftModules modules;
  for (const checkpoint::NamedSlice* slice : saved_in_full(config, slices)) {
    refuse_tied(family, config.model, *slice);
    for (checkpoint::F32Tensor& tensor :
         folder_tensors(family, config.model, *slice, flat, copies)) {
      refuse_layer_with_lora(adapter, tensor.name);
      modules.saved.insert(module_of(tensor.name));
      tensor.name = kPrefix + tensor.name;
      tensors.push_back(std::move(tensor));
    }
  }
  modules.saved = with_names_in_memory(family, modules.saved);
  modules.targets = targets_of(config, slices, adapter.modules);
  modules.transposed = is_transposed(config, slices);
  tensors = with_names_in_memory(family, std::move(tensors));
  const Json json =
      make_peft_config(lora, modules, config.train.init_from, is_causal_lm ? "CAUSAL_LM" : "");
  std::map<std::string, std::string> with_format = metadata;
  with_format["format"] = "pt";
  return make_folder(out, [&](const fs::path& folder) {
    write_file_atomically(folder / kAdapterConfig, json.dump({.indent = 2}) + "\n");
    add_files(folder);
    return checkpoint::write_safetensors(folder / kAdapterModel, tensors, with_format);
  });
}

std::vector<std::string> notes_of_base(const RunConfig& config) {
  const std::string& base = config.train.init_from;
  if (base.empty())
    return {
        "the base weights were initialised from scratch, so PEFT has no folder to load them from"};
  if (!is_model_folder(base))
    return {fmt::format("the LoRA's base '{}' is not a Hugging Face folder", base)};
  RunConfig theirs, ours;
  theirs.model = read_model(base);
  ours.model = config.model;
  std::vector<std::string> notes;
  for (const config::FieldChange& field : config::differences(theirs, ours)) {
    const std::string name = field.path.substr(field.path.rfind('.') + 1);
    if (name == "context" || name == "label_smoothing" || name == "classes" || name == "task" ||
        name.ends_with("dropout"))
      continue;  // only used in training, or part of a head, which is in the folder
    notes.push_back(fmt::format("{} is {} in this run, but {} in {}, which PEFT will use",
                                field.path,
                                field.now,
                                field.before,
                                base));
  }
  return notes;
}

}  // namespace lockstep::huggingface
