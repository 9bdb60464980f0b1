#include "models/huggingface/peft.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <vector>

#include "models/huggingface/config_fields.h"
#include "models/huggingface/folder.h"
#include "models/huggingface/open_config.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"

namespace lockstep::huggingface {
namespace {

// Fields that are read here, that the names of the tensors imply, or that only matter for training
// or loading with PEFT.
const std::vector<std::string> kKnown = words_of(
    "auto_mapping base_model_name_or_path bias corda_config ensure_weight_tying eva_config "
    "exclude_modules fan_in_fan_out inference_mode init_lora_weights layers_pattern "
    "layers_to_transform loftq_config lora_alpha lora_dropout lora_ga_config megatron_config "
    "megatron_core modules_to_save peft_type peft_version qalora_group_size r revision "
    "runtime_config target_modules task_type");

// Initialisations that keep the base weights. The others subtract something from them first.
constexpr std::array kInitialisations = {"gaussian", "eva", "orthogonal", "mica"};

template <typename Names>
bool has(const Names& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Whether the value is null, false, or an empty object or list, as PEFT writes unused fields.
bool is_unused(const Json& value) {
  if (value.is_structured()) return value.empty();
  return value.is_null() || (value.kind() == Json::Kind::kBoolean && !value.get<bool>());
}

}  // namespace

void check_peft_config(const std::filesystem::path& folder, const LoraConfig& lora) {
  const std::filesystem::path path = folder / kAdapterConfig;
  if (!is_there(path))
    throw ConfigError("adapter.lora.from: \"{}\" {}",
                      folder.string(),
                      is_model_folder(folder)
                          ? "is the folder of a model, not of a PEFT adapter: it has no "
                            "adapter_config.json; give a model to model.from or train.init_from"
                          : "has no adapter_config.json; allowed: a folder as PEFT's "
                            "save_pretrained writes it");
  const Json json = read_json(path);
  ConfigFields fields(json, path.string());
  if (fields.text("peft_type", "LORA") != "LORA") fields.refuse("peft_type", "\"LORA\"");
  if (fields.integer("r") != lora.rank)
    fields.refuse("r", fmt::format("adapter.lora.rank, which is {}", lora.rank));
  if (static_cast<float>(fields.number("lora_alpha", 8)) != lora.alpha)
    fields.refuse("lora_alpha", fmt::format("adapter.lora.alpha, which is {}", lora.alpha));
  if (fields.text("bias", "none") != "none") fields.refuse("bias", "\"none\"");
  const Json* const initial = json.find("init_lora_weights");
  if (initial != nullptr && initial->is_string() &&
      !has(kInitialisations, initial->get<std::string>()))
    fields.refuse(
        "init_lora_weights",
        "true, false, gaussian, eva, orthogonal, mica; the others change the base weights");
  for (const std::string& name : json.names()) {
    if (!has(kKnown, name) && !is_unused(json.at(name)))
      fields.refuse(name, "null, false or empty, because such LoRAs are not supported");
  }
}

Json make_peft_config(const LoraConfig& lora,
                      const PeftModules& modules,
                      const std::string& base,
                      const std::string& task) {
  const auto list = [](const std::set<std::string>& names) {
    return std::vector<std::string>(names.begin(), names.end());
  };
  Json json = Json::object();
  json["peft_type"] = "LORA";
  json["task_type"] = task.empty() ? Json() : Json(task);
  json["base_model_name_or_path"] = base;
  json["r"] = lora.rank;
  json["lora_alpha"] = shortest(lora.alpha);
  json["lora_dropout"] = shortest(lora.dropout);
  json["target_modules"] = list(modules.targets);
  if (!modules.saved.empty()) json["modules_to_save"] = list(modules.saved);
  json["fan_in_fan_out"] = modules.transposed;
  json["bias"] = "none";
  json["init_lora_weights"] = true;
  json["inference_mode"] = true;
  return json;
}

}  // namespace lockstep::huggingface
