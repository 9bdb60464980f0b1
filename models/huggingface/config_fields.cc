#include "models/huggingface/config_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::huggingface {
namespace {

// Fields that every config.json may have and that do not affect training: what transformers returns
// and caches, options of its `generate`, where the folder comes from, how it was initialised.
const std::vector<std::string> kWithoutEffect = words_of(
    "_attn_implementation _attn_implementation_autoset _flash_attn_2_enabled _name_or_path "
    "_num_labels add_cross_attention architectures attn_implementation auto_map bad_words_ids "
    "begin_suppress_tokens bos_token_id cross_attention_hidden_size decoder_start_token_id "
    "diversity_penalty do_sample dtype early_stopping encoder_no_repeat_ngram_size eos_token_id "
    "exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id "
    "gradient_checkpointing id2label initializer_range is_decoder is_encoder_decoder "
    "is_llama_config label2id length_penalty max_length min_length model_type "
    "no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences "
    "output_attentions output_hidden_states output_past output_scores pad_token_id prefix "
    "problem_type pruned_heads remove_invalid_values repetition_penalty return_dict "
    "return_dict_in_generate sep_token_id suppress_tokens task_specific_params temperature "
    "tf_legacy_loss tie_encoder_decoder tokenizer_class top_k top_p torch_dtype torchscript "
    "transformers.js_config transformers_version typical_p unsloth_fixed unsloth_version "
    "use_bfloat16 use_cache");

struct NamedActivation {
  const char* name;
  Activation activation;
};

// If an activation has several names, the first one is written.
constexpr std::array kActivations = {NamedActivation{"silu", Activation::kSilu},
                                     NamedActivation{"swish", Activation::kSilu},
                                     NamedActivation{"gelu", Activation::kGeluErf},
                                     NamedActivation{"gelu_new", Activation::kGeluTanh},
                                     NamedActivation{"gelu_pytorch_tanh", Activation::kGeluTanh},
                                     NamedActivation{"relu", Activation::kRelu},
                                     NamedActivation{"relu6", Activation::kRelu6},
                                     NamedActivation{"tanh", Activation::kTanh}};

const Json& no_fields() {
  static const Json none = Json::object();
  return none;
}

}  // namespace

ConfigFields::ConfigFields(const Json& object, std::string origin, std::string prefix)
    : object_(object), origin_(std::move(origin)), prefix_(std::move(prefix)) {
  if (object_.kind() != Json::Kind::kObject)
    throw ConfigError("{}: {} is not a JSON object",
                      origin_,
                      prefix_.empty() ? "it" : prefix_.substr(0, prefix_.size() - 1));
}

const Json* ConfigFields::find(const std::string& name) {
  known_.insert(name);
  const Json* value = object_.find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool ConfigFields::is_null(const std::string& name) const {
  const Json* value = object_.find(name);
  return value != nullptr && value->is_null();
}

template <typename T>
T ConfigFields::get(const std::string& name, const Json& value, const char* allowed) const {
  try {
    return value.get<T>();
  } catch (const JsonError&) {
    refuse(name, allowed);
  }
}

template <typename T>
T ConfigFields::needed(const std::string& name, const char* allowed) {
  const Json* value = find(name);
  if (value == nullptr)
    throw ConfigError("{}: field {}{} is missing; it must be {}", origin_, prefix_, name, allowed);
  return get<T>(name, *value, allowed);
}

int64_t ConfigFields::integer(const std::string& name) {
  return needed<int64_t>(name, "a whole number");
}

double ConfigFields::number(const std::string& name) { return needed<double>(name, "a number"); }

int64_t ConfigFields::integer(const std::string& name, int64_t otherwise) {
  const Json* value = find(name);
  return value == nullptr ? otherwise : get<int64_t>(name, *value, "a whole number");
}

double ConfigFields::number(const std::string& name, double otherwise) {
  const Json* value = find(name);
  return value == nullptr ? otherwise : get<double>(name, *value, "a number");
}

bool ConfigFields::boolean(const std::string& name, bool otherwise) {
  const Json* value = find(name);
  return value == nullptr ? otherwise : get<bool>(name, *value, "true or false");
}

std::string ConfigFields::text(const std::string& name, const std::string& otherwise) {
  const Json* value = find(name);
  return value == nullptr ? otherwise : get<std::string>(name, *value, "text");
}

std::vector<std::string> ConfigFields::texts(const std::string& name) {
  std::vector<std::string> all;
  const Json* value = find(name);
  if (value == nullptr) return all;
  if (value->kind() != Json::Kind::kArray) refuse(name, "a list of texts");
  for (const Json& element : *value)
    all.push_back(get<std::string>(name, element, "a list of texts"));
  return all;
}

std::vector<double> ConfigFields::numbers(const std::string& name) {
  constexpr const char* kAllowed = "a number, or a list of numbers";
  std::vector<double> all;
  const Json* value = find(name);
  if (value == nullptr) return all;
  if (value->kind() != Json::Kind::kArray) return {get<double>(name, *value, kAllowed)};
  for (const Json& element : *value) all.push_back(get<double>(name, element, kAllowed));
  return all;
}

std::vector<std::string> ConfigFields::names(const std::string& name) {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (value->kind() != Json::Kind::kObject) refuse(name, "an object");
  return value->names();
}

ConfigFields ConfigFields::object(const std::string& name) {
  const Json* value = find(name);
  return {value == nullptr ? no_fields() : *value, origin_, prefix_ + name + "."};
}

Activation ConfigFields::activation(const std::string& name, Activation otherwise) {
  if (!has(name)) return otherwise;
  const std::string given = text(name, "");
  std::string allowed;
  for (const auto& [known, activation] : kActivations) {
    if (given == known) return activation;
    append_item(allowed, known);
  }
  refuse(name, allowed);
}

void ConfigFields::ignore(const std::string& names) {
  for (const std::string& name : words_of(names)) known_.insert(name);
}

void ConfigFields::refuse(const std::string& name, const std::string& allowed) const {
  constexpr size_t kMaxShown = 80;
  const Json* value = object_.find(name);
  std::string shown = value == nullptr ? "missing" : value->dump({.ascii = true});
  if (shown.size() > kMaxShown) shown = shown.substr(0, kMaxShown) + "...";
  throw ConfigError(
      "{}: field {}{}: value is {}; allowed: {}", origin_, prefix_, name, shown, allowed);
}

void ConfigFields::require_known(const std::string& who) const {
  const auto without_effect = [&](const std::string& name) {
    return prefix_.empty() && std::ranges::find(kWithoutEffect, name) != kWithoutEffect.end();
  };
  for (const std::string& name : object_.names()) {
    if (known_.count(name) > 0 || without_effect(name) || object_.at(name).is_null()) continue;
    refuse(name, "no such field, because it is not supported for " + who);
  }
}

Json shortest(float value) { return std::stod(fmt::format("{}", value)); }

void write_activation(const std::string& field, Activation activation, Json& config) {
  const Json* const given = config.find(field);
  const std::string before =
      given != nullptr && given->is_string() ? given->get<std::string>() : "";
  const char* name = nullptr;
  for (const auto& [known, meant] : kActivations) {
    if (meant != activation) continue;
    if (before == known) return;
    if (name == nullptr) name = known;
  }
  if (name == nullptr)
    throw ConfigError("Hugging Face has no name for activation {}", name_of(activation));
  config[field] = name;
}

}  // namespace lockstep::huggingface
