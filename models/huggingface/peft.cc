#include "models/huggingface/peft.h"

#include <list>
#include <map>
#include <set>

#include "models/huggingface/family.h"
#include "models/huggingface/folder.h"
#include "models/huggingface/lora_layers.h"
#include "models/huggingface/peft_config.h"
#include "models/huggingface/tensor_files.h"
#include "models/huggingface/unfinished_folder.h"
#include "models/huggingface/weights.h"
#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/checkpoint/match.h"
#include "runtime/config/differences.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/lora.h"

namespace lockstep::huggingface {
namespace fs = std::filesystem;
namespace {

constexpr const char* kAdapterModel = "adapter_model.safetensors";
constexpr const char* kPrefix = "base_model.model.";

// A matrix of a module: rows [first, first + rows) of a slice.
struct Matrix {
  std::string name;  // in the file
  const NamedSlice* slice;
  int64_t first, rows;

  int64_t columns() const { return slice->shape[1]; }
  float* in(float* flat) const { return flat + slice->offset + first * columns(); }
};

const NamedSlice& find(const std::vector<NamedSlice>& slices, const std::string& name) {
  for (const NamedSlice& slice : slices) {
    if (slice.name == name) return slice;
  }
  throw CheckpointError("there is no tensor {}", name);
}

// All matrices of the LoRA, and the names of the modules that have them.
struct Adapter {
  std::vector<Matrix> matrices;
  std::set<std::string> modules;
};

Adapter adapter_of(const RunConfig& config, const std::vector<NamedSlice>& slices) {
  const LoraConfig& lora = config.adapter.lora.value();
  const Pattern pattern("adapter.lora.match", lora.match);
  Adapter adapter;
  for (const NamedSlice& a : slices) {
    if (!a.name.ends_with(kLoraA)) continue;
    const std::string layer = a.name.substr(0, a.name.size() - std::string(kLoraA).size());
    const NamedSlice& b = find(slices, layer + kLoraB);
    const NamedSlice& weight = find(slices, layer + ".weight");
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

// "classifier" of "classifier.weight".
std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

// The slices that train beside the LoRA, with the others of their layers, which PEFT saves as a whole.
std::vector<const NamedSlice*> saved_beside(const RunConfig& config,
                                            const std::vector<NamedSlice>& slices) {
  const LoraConfig& lora = config.adapter.lora.value();
  if (lora.train_also.empty()) return {};
  const Pattern also("adapter.lora.train_also", lora.train_also);
  std::set<std::string> layers;
  for (const NamedSlice& slice : slices)
    if (!is_lora(slice.name) && also.found_in(slice.name)) layers.insert(module_of(slice.name));
  std::vector<const NamedSlice*> saved;
  for (const NamedSlice& slice : slices)
    if (!is_lora(slice.name) && layers.contains(module_of(slice.name))) saved.push_back(&slice);
  return saved;
}

// ---- Reading ----

// What the folder calls the tensor: as files of models do, or as transformers 5 has it in memory, which
// PEFT saves.
std::string name_in(const TensorFiles& files, const Family* family, const std::string& name) {
  if (family == nullptr || files.find(name) != nullptr) return name;
  const std::string other = family->name_in_memory(name);
  return !other.empty() && files.find(other) != nullptr ? other : name;
}

// Refuses tensors that are missing, of other extents, or that nobody asked for. The optional ones may
// be missing, and all may be there by both of their names.
void check_tensors(const TensorFiles& files,
                   const std::string& origin,
                   const Family* family,
                   ShapeByName expected,
                   const ShapeByName& optional) {
  ShapeByName there;
  for (const auto& [name, tensor] : files.tensors()) there[name] = tensor.entry->shape;
  for (const auto& [name, tensor] : files.tensors()) {
    const std::string other = family == nullptr ? "" : family->name_in_memory(name);
    if (!other.empty()) there.erase(other);
  }
  for (const auto& [name, shape] : optional)
    if (there.contains(name)) expected[name] = shape;
  const std::vector<std::string> mismatches = list_mismatches(there, expected);
  if (!mismatches.empty())
    throw CheckpointError("{}: {} of its tensors and those of adapter.lora do not match: {}",
                          origin,
                          mismatches.size(),
                          mismatches.front());
}

// Refuses a tensor of the folder that the model has, but that the config lets rest.
void refuse_frozen(const TensorFiles& files,
                   const std::string& origin,
                   const Family& family,
                   const RunConfig& config,
                   const std::vector<NamedSlice>& slices,
                   const ShapeByName& optional) {
  for (const NamedSlice& slice : base_slices(slices)) {
    for (const TensorPart& part : family.parts(config.model, slice.name)) {
      const std::string name = name_in(files, &family, kPrefix + part.name);
      if (files.find(name) == nullptr || optional.contains(name)) continue;
      refuse_value(
          "adapter.lora.train_also",
          in_quotes(config.adapter.lora->train_also),
          fmt::format(
              "what is found in {} too, which {} has as {}", slice.name, origin, quote_name(name)));
    }
  }
}

fs::path tensors_of(const fs::path& folder) {
  constexpr const char* kOther = "adapter_model.bin";
  const fs::path file = folder / kAdapterModel;
  if (!is_there(file) && is_there(folder / kOther))
    throw CheckpointError(
        "{}: has {}, which only Python reads, but no {}; write one with PEFT: "
        "PeftModel.from_pretrained(...).save_pretrained(...)",
        folder.string(),
        kOther,
        kAdapterModel);
  return file;
}

// Of a tied matrix PEFT would train the embedding alone.
void refuse_tied(const Family& family, const ModelConfig& model, const NamedSlice& slice) {
  if (slice.name != family.tied_weight(model)) return;
  throw ConfigError(
      "adapter.lora.train_also: trains {}, which is the output matrix, too; allowed with a folder "
      "of PEFT: others, as PEFT has the two apart (--format huggingface writes all)",
      slice.name);
}

// ---- Writing ----

// The same names and those that transformers 5 has in memory. PEFT knows nothing of the two: a folder
// that is to be read with transformers 4 and 5 has everything by both.
std::set<std::string> with_names_in_memory(const Family& family,
                                           const std::set<std::string>& modules) {
  std::set<std::string> all = modules;
  for (const std::string& module : modules) {
    const std::string other = family.name_in_memory(module + ".");
    if (!other.empty()) all.insert(other.substr(0, other.size() - 1));
  }
  return all;
}

// What adapter_config.json has for target_modules: the last parts of the modules' names, where no other
// module ends so, else whole names.
std::set<std::string> targets_of(const RunConfig& config,
                                 const std::vector<NamedSlice>& slices,
                                 const std::set<std::string>& modules) {
  const auto last = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
  const std::set<std::string> all = with_names_in_memory(family_to_use(config.model), modules);
  std::set<std::string> short_names;
  for (const std::string& module : all) short_names.insert(last(module));
  for (const NamedSlice& slice : base_slices(slices)) {
    if (slice.shape.rank() != 2 || !slice.name.ends_with(".weight")) continue;
    for (const LoraModule& module : modules_of(config.model, slice.name, slice.shape[0])) {
      if (!modules.contains(module.name) && short_names.contains(last(module.name))) return all;
    }
  }
  return short_names;
}

// Of such a layer PEFT would save all or nothing.
void refuse_beside_lora(const Adapter& adapter, const std::string& tensor) {
  if (!adapter.modules.contains(module_of(tensor))) return;
  throw ConfigError(
      "adapter.lora.train_also: trains {}, in a layer that has a LoRA; allowed with a folder of "
      "PEFT: others (--format huggingface writes all)",
      tensor);
}

// The tensors by both of their names.
std::vector<F32Tensor> with_names_in_memory(const Family& family, std::vector<F32Tensor> tensors) {
  const size_t by_one_name = tensors.size();
  for (size_t i = 0; i < by_one_name; ++i) {
    const std::string other = family.name_in_memory(tensors[i].name);
    if (!other.empty()) tensors.push_back({other, tensors[i].shape, tensors[i].values});
  }
  return tensors;
}

bool is_transposed(const RunConfig& config, const std::vector<NamedSlice>& slices) {
  const Family& family = family_to_use(config.model);
  for (const NamedSlice& slice : slices) {
    if (!slice.name.ends_with(kLoraA)) continue;
    const std::string layer = slice.name.substr(0, slice.name.size() - std::string(kLoraA).size());
    if (family.parts(config.model, layer + ".weight").front().transposed) return true;
  }
  return false;
}

}  // namespace

void read_peft(const fs::path& folder,
               const RunConfig& config,
               const std::vector<NamedSlice>& slices,
               float* flat) {
  check_peft_config(folder, config.adapter.lora.value());
  const Adapter adapter = adapter_of(config, slices);
  const TensorFiles files(tensors_of(folder));
  const Family* const family = family_of(config.model);
  ShapeByName expected, optional;
  for (const Matrix& matrix : adapter.matrices)
    expected[name_in(files, family, matrix.name)] = {matrix.rows, matrix.columns()};
  std::vector<std::pair<const NamedSlice*, TensorPlace>> beside;
  if (family != nullptr) {
    for (const NamedSlice* slice : saved_beside(config, slices)) {
      for (TensorPlace& place : places_of(*family, config.model, *slice)) {
        place.part.name = name_in(files, family, kPrefix + place.part.name);
        if (files.find(place.part.name) != nullptr) refuse_tied(*family, config.model, *slice);
        optional[place.part.name] = place.extents;
        beside.push_back({slice, place});
      }
    }
    refuse_frozen(files, folder.string(), *family, config, slices, optional);
  }
  check_tensors(files, folder.string(), family, expected, optional);
  for (const Matrix& matrix : adapter.matrices)
    read(*files.find(name_in(files, family, matrix.name)), matrix.in(flat));
  for (const auto& [slice, place] : beside) {
    const TensorFiles::Tensor* const tensor = files.find(place.part.name);
    if (tensor != nullptr) read_place(*tensor, *slice, place, flat + slice->offset);
  }
}

WrittenFile write_peft(const fs::path& out,
                       const RunConfig& config,
                       const std::vector<NamedSlice>& slices,
                       const float* flat,
                       bool is_causal_lm,
                       const std::map<std::string, std::string>& metadata) {
  if (!config.adapter.lora)
    throw ConfigError(
        "--format: value is peft; allowed for a run without adapter.lora: another one");
  const LoraConfig& lora = *config.adapter.lora;
  const Family& family = family_to_use(config.model);
  const Adapter adapter = adapter_of(config, slices);
  std::vector<F32Tensor> tensors;
  std::list<std::vector<float>> copies;
  for (const Matrix& matrix : adapter.matrices)
    tensors.push_back({matrix.name,
                       {matrix.rows, matrix.columns()},
                       {matrix.in(const_cast<float*>(flat)),
                        static_cast<size_t>(matrix.rows * matrix.columns())}});
  PeftModules modules;
  for (const NamedSlice* slice : saved_beside(config, slices)) {
    refuse_tied(family, config.model, *slice);
    for (F32Tensor& tensor : folder_tensors(family, config.model, *slice, flat, copies)) {
      refuse_beside_lora(adapter, tensor.name);
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
    return write_safetensors(folder / kAdapterModel, tensors, with_format);
  });
}

std::vector<std::string> notes_of_base(const RunConfig& config) {
  const std::string& base = config.train.init_from;
  if (base.empty()) return {"the weights below the LoRA began as random ones, which no folder has"};
  if (!is_model_folder(base))
    return {fmt::format("'{}', which the LoRA belongs to, is no folder of Hugging Face", base)};
  RunConfig theirs, ours;
  theirs.model = read_model(base);
  ours.model = config.model;
  std::vector<std::string> notes;
  for (const FieldChange& field : differences(theirs, ours)) {
    const std::string name = field.path.substr(field.path.rfind('.') + 1);
    if (name == "context" || name == "label_smoothing" || name == "classes" || name == "task" ||
        name.ends_with("dropout"))
      continue;  // of training alone, or of a head, which is in the folder
    notes.push_back(fmt::format("{} is {} here, and {} in {}, which PEFT goes by",
                                field.path,
                                field.now,
                                field.before,
                                base));
  }
  return notes;
}

}  // namespace lockstep::huggingface
