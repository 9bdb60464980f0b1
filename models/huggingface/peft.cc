#include "models/huggingface/peft.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <set>

#include "models/huggingface/family.h"
#include "models/huggingface/lora_layers.h"
#include "models/huggingface/open_config.h"
#include "models/huggingface/tensor_files.h"
#include "models/huggingface/unfinished_folder.h"
#include "models/huggingface/weights.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/checkpoint/match.h"
#include "runtime/graph/ops/lora.h"

namespace lockstep::huggingface {
namespace fs = std::filesystem;
namespace {

constexpr const char* kAdapterConfig = "adapter_config.json";
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

void check_config(const fs::path& folder, const LoraConfig& lora) {
  const fs::path path = folder / kAdapterConfig;
  const Json json = read_json(path);
  ConfigFields fields(json, path.string());
  if (fields.text("peft_type", "LORA") != "LORA") fields.refuse("peft_type", "\"LORA\"");
  if (fields.integer("r") != lora.rank)
    fields.refuse("r", fmt::format("adapter.lora.rank, which is {}", lora.rank));
  if (static_cast<float>(fields.number("lora_alpha", 8)) != lora.alpha)
    fields.refuse("lora_alpha", fmt::format("adapter.lora.alpha, which is {}", lora.alpha));
  if (fields.text("bias", "none") != "none") fields.refuse("bias", "\"none\"");
  for (const char* other : {"use_rslora", "use_dora", "lora_bias", "use_qalora"})
    if (fields.boolean(other, false)) fields.refuse(other, "false");
  for (const char* other : {"alora_invocation_tokens",
                            "layer_replication",
                            "target_parameters",
                            "trainable_token_indices"})
    if (fields.has(other)) fields.refuse(other, "null");
  for (const char* other : {"rank_pattern", "alpha_pattern"})
    if (fields.has(other) && fields.members(other) > 0) fields.refuse(other, "{}");
}

// Refuses tensors that are missing, of other extents, or that nobody asked for.
void check_tensors(const TensorFiles& files,
                   const std::string& origin,
                   const ShapeByName& expected,
                   const ShapeByName& optional) {
  ShapeByName there;
  for (const auto& [name, tensor] : files.tensors()) {
    const auto extra = optional.find(name);
    if (extra != optional.end() && extra->second == tensor.entry->shape) continue;
    there[name] = tensor.entry->shape;
  }
  const std::vector<std::string> mismatches = list_mismatches(there, expected);
  if (!mismatches.empty())
    throw CheckpointError("{}: {} of its tensors and those of adapter.lora do not match: {}",
                          origin,
                          mismatches.size(),
                          mismatches.front());
}

// ---- Writing ----

// What adapter_config.json has for target_modules: the last parts of the modules' names, where no other
// module ends so, else whole names.
std::vector<std::string> targets_of(const RunConfig& config,
                                    const std::vector<NamedSlice>& slices,
                                    const std::set<std::string>& modules) {
  const auto last = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
  std::set<std::string> short_names;
  for (const std::string& module : modules) short_names.insert(last(module));
  for (const NamedSlice& slice : base_slices(slices)) {
    if (slice.shape.rank() != 2 || !slice.name.ends_with(".weight")) continue;
    for (const LoraModule& module : modules_of(config.model, slice.name, slice.shape[0])) {
      if (!modules.contains(module.name) && short_names.contains(last(module.name)))
        return {modules.begin(), modules.end()};
    }
  }
  return {short_names.begin(), short_names.end()};
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
  check_config(folder, config.adapter.lora.value());
  const Adapter adapter = adapter_of(config, slices);
  const TensorFiles files(folder / kAdapterModel);
  ShapeByName expected, optional;
  for (const Matrix& matrix : adapter.matrices)
    expected[matrix.name] = {matrix.rows, matrix.columns()};
  const Family* const family = family_of(config.model);
  std::vector<std::pair<const NamedSlice*, TensorPlace>> beside;
  if (family != nullptr) {
    for (const NamedSlice* slice : saved_beside(config, slices)) {
      for (const TensorPlace& place : places_of(*family, config.model, *slice)) {
        optional[kPrefix + place.part.name] = place.extents;
        beside.push_back({slice, place});
      }
    }
  }
  check_tensors(files, folder.string(), expected, optional);
  for (const Matrix& matrix : adapter.matrices) read(*files.find(matrix.name), matrix.in(flat));
  for (const auto& [slice, place] : beside) {
    const TensorFiles::Tensor* const tensor = files.find(kPrefix + place.part.name);
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
  std::set<std::string> beside;
  for (const NamedSlice* slice : saved_beside(config, slices)) {
    for (F32Tensor& tensor : folder_tensors(family, config.model, *slice, flat, copies)) {
      beside.insert(module_of(tensor.name));
      tensor.name = kPrefix + tensor.name;
      tensors.push_back(std::move(tensor));
    }
  }
  Json json = Json::object();
  json["peft_type"] = "LORA";
  json["task_type"] = is_causal_lm ? Json("CAUSAL_LM") : Json();
  json["base_model_name_or_path"] = config.train.init_from;
  json["r"] = lora.rank;
  json["lora_alpha"] = shortest(lora.alpha);
  json["lora_dropout"] = shortest(lora.dropout);
  json["target_modules"] = targets_of(config, slices, adapter.modules);
  if (!beside.empty())
    json["modules_to_save"] = std::vector<std::string>(beside.begin(), beside.end());
  json["fan_in_fan_out"] = is_transposed(config, slices);
  json["bias"] = "none";
  json["init_lora_weights"] = true;
  json["inference_mode"] = true;
  std::map<std::string, std::string> with_format = metadata;
  with_format["format"] = "pt";
  return make_folder(out, [&](const fs::path& folder) {
    write_file_atomically(folder / kAdapterConfig, json.dump({.indent = 2}) + "\n");
    return write_safetensors(folder / kAdapterModel, tensors, with_format);
  });
}

}  // namespace lockstep::huggingface
