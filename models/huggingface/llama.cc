// Llama, Mistral, Qwen2 and Qwen3. q, k and v of the folder are one tensor of the model, and so are
// gate and up.
#include <algorithm>
#include <string>
#include <vector>

#include "models/huggingface/decoder_head.h"
#include "models/huggingface/family.h"
#include "runtime/base/error.h"

namespace lockstep::huggingface {
namespace {

constexpr const char* kLlama = "llama";
constexpr const char* kMistral = "mistral";
constexpr const char* kQwen2 = "qwen2";
constexpr const char* kQwen3 = "qwen3";

const LlamaConfig& config_of(const ModelConfig& model) { return std::get<LlamaConfig>(model); }

int64_t kv_heads_of(const LlamaConfig& llama) {
  return llama.kv_heads > 0 ? llama.kv_heads : llama.heads;
}

int64_t head_size_of(const LlamaConfig& llama) {
  return llama.head_size > 0 ? llama.head_size : llama.width / llama.heads;
}

constexpr const char* kSliding = "sliding_attention";
constexpr const char* kFull = "full_attention";

// The fields of sliding windows. As in transformers, their meaning and defaults depend on the type.
struct WindowFields {
  int64_t window = 0;                 // 0: none
  int64_t first = 0;                  // the first layer with the window, if `layers` is empty
  std::vector<std::string> layers{};  // the kind of each layer: kSliding or kFull
};

WindowFields read_window_fields(ConfigFields& fields, const std::string& type) {
  const bool used = fields.boolean("use_sliding_window", false);
  const bool is_null = fields.is_null("sliding_window");
  const int64_t window = fields.integer("sliding_window", is_null ? 0 : 4096);
  const int64_t first = fields.integer("max_window_layers", 28);
  const std::vector<std::string> layers = fields.texts("layer_types");
  if (type == kLlama) return {};
  if (type == kMistral) return {.window = window};
  return {used ? window : 0, first, layers};
}

// The sliding window, or 0 if there is none. All layers must have the same window, unless it is at
// least as long as the context and so leaves out nothing.
int64_t read_window(ConfigFields& fields, const std::string& type, const LlamaConfig& llama) {
  const WindowFields fields_read = read_window_fields(fields, type);
  const auto of_kind = [&](const char* kind) {
    return static_cast<int64_t>(std::ranges::count(fields_read.layers, kind));
  };
  int64_t layers = std::max<int64_t>(llama.layers - fields_read.first, 0);
  if (!fields_read.layers.empty()) {
    layers = of_kind(kSliding);
    if (layers + of_kind(kFull) != llama.layers)
      fields.refuse("layer_types", fmt::format("{} or {}, for each layer", kSliding, kFull));
    if (fields_read.window == 0 && layers > 0)
      fields.refuse("layer_types", fmt::format("{} for all layers", kFull));
  }
  if (layers == llama.layers) return fields_read.window;
  if (layers == 0 || fields_read.window >= llama.context) return 0;
  if (fields_read.window > 0)
    fields.refuse(fields_read.layers.empty() ? "max_window_layers" : "layer_types",
                  "values that give the window to all layers or to none");
  return 0;
}

void read_biases(ConfigFields& fields, const std::string& type, LlamaConfig& llama) {
  const bool attention = fields.boolean("attention_bias", false);
  if (attention && type != kLlama && type != kQwen3)
    fields.refuse("attention_bias", "false, because " + type + " has no bias after attention");
  llama.qkv_bias = attention || type == kQwen2;
  llama.output_bias = attention;
  llama.mlp_bias = fields.boolean("mlp_bias", false);
  if (llama.mlp_bias && type != kLlama)
    fields.refuse("mlp_bias", "false, because " + type + " has no bias in its MLP");
}

using Scaling = LlamaConfig::RopeScaling;

// Reads rope_scaling or rope_parameters: the kind of scaling and, in newer files, theta.
void read_scaling(ConfigFields fields, LlamaConfig& llama) {
  llama.rope_theta = fields.number("rope_theta", llama.rope_theta);
  const char* kind = fields.has("rope_type") ? "rope_type" : "type";
  const std::string type = fields.text(kind, "default");
  fields.ignore("rope_type type");
  const int64_t original = fields.integer("original_max_position_embeddings", llama.context);
  if (type == "default") return;
  llama.rope_factor = fields.number("factor");
  if (type == "linear") {
    llama.rope_scaling = Scaling::kLinear;
  } else if (type == "dynamic") {
    llama.rope_scaling = Scaling::kDynamic;
    // transformers ignores the object's own field here.
    llama.rope_original_context = llama.context;
  } else if (type == "llama3") {
    llama.rope_scaling = Scaling::kLlama3;
    llama.rope_low_freq_factor = fields.number("low_freq_factor");
    llama.rope_high_freq_factor = fields.number("high_freq_factor");
    llama.rope_original_context = original;
  } else {
    fields.refuse(kind, "default, linear, dynamic, llama3");
  }
  fields.require_known("rotary positions");
}

const char* type_of(Scaling scaling) {
  switch (scaling) {
    case Scaling::kNoScaling: return "default";
    case Scaling::kLinear: return "linear";
    case Scaling::kDynamic: return "dynamic";
    case Scaling::kLlama3: return "llama3";
  }
  return "default";
}

// Reads rope_parameters, or rope_theta and rope_scaling. `llama` has its context.
void read_rotary(ConfigFields& fields, LlamaConfig& llama) {
  llama.rope_theta = fields.number("rope_theta", llama.rope_theta);
  if (fields.has("rope_scaling") && fields.has("rope_parameters"))
    fields.refuse("rope_scaling", "null, because rope_parameters is set");
  if (fields.has("rope_scaling")) read_scaling(fields.object("rope_scaling"), llama);
  if (fields.has("rope_parameters")) read_scaling(fields.object("rope_parameters"), llama);
}

void write_rotary(const LlamaConfig& llama, Json& config) {
  Json scaling = Json::object({{"rope_type", type_of(llama.rope_scaling)}});
  if (llama.rope_scaling != Scaling::kNoScaling) scaling["factor"] = llama.rope_factor;
  if (llama.rope_scaling == Scaling::kLlama3) {
    scaling["low_freq_factor"] = llama.rope_low_freq_factor;
    scaling["high_freq_factor"] = llama.rope_high_freq_factor;
    scaling["original_max_position_embeddings"] = llama.rope_original_context;
  }
  if (config.contains("rope_parameters")) {
    scaling["rope_theta"] = llama.rope_theta;
    config["rope_parameters"] = scaling;
    return;
  }
  config["rope_theta"] = llama.rope_theta;
  config["rope_scaling"] = llama.rope_scaling == Scaling::kNoScaling ? Json() : scaling;
}

class Llama final : public Family {
 public:
  std::vector<std::string> types() const override { return {kLlama, kMistral, kQwen2, kQwen3}; }
  const char* section() const override { return LlamaConfig::kName; }
  std::string base_prefix(const ModelConfig& /*model*/) const override { return "model."; }

  ModelConfig read(ConfigFields& fields) const override {
    const std::string type = fields.text("model_type", kLlama);
    LlamaConfig llama;
    llama.layers = fields.integer("num_hidden_layers");
    llama.heads = fields.integer("num_attention_heads");
    llama.kv_heads = fields.integer("num_key_value_heads", llama.heads);
    llama.head_size = fields.integer("head_dim", type == kQwen3 ? 128 : 0);
    llama.width = fields.integer("hidden_size");
    llama.mlp_width = fields.integer("intermediate_size");
    llama.context = fields.integer("max_position_embeddings", 2048);
    llama.vocabulary = fields.integer("vocab_size");
    llama.tied_head = fields.boolean("tie_word_embeddings", false);
    llama.activation = fields.activation("hidden_act", Activation::kSilu);
    llama.norm_epsilon = static_cast<float>(fields.number("rms_norm_eps", 1e-6));
    read_rotary(fields, llama);
    llama.qk_norm = type == kQwen3;
    llama.sliding_window = read_window(fields, type, llama);
    read_biases(fields, type, llama);
    llama.attention_dropout = static_cast<float>(fields.number("attention_dropout", 0));
    llama.head = read_head(fields);
    fields.ignore("pretraining_tp");
    for (const char* other : {"rope_interleaved", "use_mrope"}) {
      if (fields.boolean(other, false)) fields.refuse(other, "false");
    }
    return llama;
  }

  void write(const ModelConfig& model,
             const std::vector<checkpoint::NamedSlice>& /*slices*/,
             Json& config) const override {
    const LlamaConfig& llama = config_of(model);
    write_type(llama, config);
    write_window(llama, config);
    write_biases(llama, config);
    config["num_hidden_layers"] = llama.layers;
    config["num_attention_heads"] = llama.heads;
    config["num_key_value_heads"] = kv_heads_of(llama);
    if (llama.head_size > 0 || config.contains("head_dim"))
      config["head_dim"] = head_size_of(llama);
    config["hidden_size"] = llama.width;
    config["intermediate_size"] = llama.mlp_width;
    // Dynamic scaling begins beyond max_position_embeddings.
    config["max_position_embeddings"] =
        llama.rope_scaling == Scaling::kDynamic ? llama.rope_original_context : llama.context;
    config["vocab_size"] = llama.vocabulary;
    config["tie_word_embeddings"] = llama.tied_head;
    write_activation("hidden_act", llama.activation, config);
    config["rms_norm_eps"] = shortest(llama.norm_epsilon);
    config["attention_dropout"] = shortest(llama.attention_dropout);
    write_rotary(llama, config);
  }

  std::vector<TensorPart> parts(const ModelConfig& model, const std::string& name) const override {
    const LlamaConfig& llama = config_of(model);
    const int64_t head_size = head_size_of(llama);
    const int64_t keys = kv_heads_of(llama) * head_size;
    std::vector<TensorPart> parts = split_tensor(
        name,
        ".qkv_proj.",
        {{".q_proj.", llama.heads * head_size}, {".k_proj.", keys}, {".v_proj.", keys}});
    if (parts.empty())
      parts = split_tensor(name, ".gate_up_proj.", {{".gate_proj."}, {".up_proj."}});
    if (parts.empty()) parts.push_back({name});
    return parts;
  }

  bool is_head(const std::string& name) const override {
    return name == "lm_head.weight" || name == kScoreWeight;
  }
  bool has_row_per_class(const std::string& name) const override { return name == kScoreWeight; }

  // inv_freq is computed from rope_theta; older versions stored it.
  bool is_ignored_tensor(const std::string& name) const override {
    return name.ends_with(".rotary_emb.inv_freq");
  }

  std::string tied_weight(const ModelConfig& model) const override {
    const LlamaConfig& llama = config_of(model);
    return llama.tied_head && llama.head == DecoderHead::kTokens ? "model.embed_tokens.weight" : "";
  }
  std::string tied_name(const ModelConfig& model, const std::string& name) const override {
    return name == "lm_head.weight" ? tied_weight(model) : "";
  }

 private:
  struct Kind {
    const char* type;
    const char* architecture;
  };
  // The model_type that has these norms, biases and windows.
  static Kind kind_of(const LlamaConfig& llama) {
    const bool any_bias = llama.qkv_bias || llama.output_bias || llama.mlp_bias;
    const bool like_llama = llama.qkv_bias == llama.output_bias;
    if (llama.qk_norm && like_llama && !llama.mlp_bias) return {kQwen3, "Qwen3ForCausalLM"};
    if (!llama.qk_norm && llama.qkv_bias && !llama.output_bias && !llama.mlp_bias)
      return {kQwen2, "Qwen2ForCausalLM"};
    if (!llama.qk_norm && llama.sliding_window > 0 && !any_bias)
      return {kMistral, "MistralForCausalLM"};
    if (!llama.qk_norm && llama.sliding_window == 0 && like_llama)
      return {kLlama, "LlamaForCausalLM"};
    throw ConfigError(
        "model.llama: qk_norm is {}, qkv_bias {}, output_bias {}, mlp_bias {}, sliding_window {}; "
        "Hugging Face has no model type with this combination",
        llama.qk_norm,
        llama.qkv_bias,
        llama.output_bias,
        llama.mlp_bias,
        llama.sliding_window);
  }

  // The fields of a Mistral without a window are those of a Llama. It remains a Mistral unless it
  // has biases.
  static void write_type(const LlamaConfig& llama, Json& config) {
    Kind kind = kind_of(llama);
    if (std::string(kind.type) == kLlama && !llama.output_bias && !llama.mlp_bias &&
        config.value("model_type", std::string()) == kMistral)
      kind = {kMistral, "MistralForCausalLM"};
    config["model_type"] = kind.type;
    write_head(llama.head, kind.architecture, config);
  }

  // A bias that is false is written only if the config.json has the field already.
  static void write_biases(const LlamaConfig& llama, Json& config) {
    for (const auto& [name, value] :
         {std::pair("attention_bias", llama.output_bias), std::pair("mlp_bias", llama.mlp_bias)})
      if (value || config.contains(name)) config[name] = value;
  }

  static void write_window(const LlamaConfig& llama, Json& config) {
    const std::string type = config.at("model_type").get<std::string>();
    if (config.contains("layer_types"))
      config["layer_types"] = Json(std::vector<std::string>(
          static_cast<size_t>(llama.layers), llama.sliding_window > 0 ? kSliding : kFull));
    if (type == kLlama) return;
    if (llama.sliding_window == 0) {
      if (type == kMistral) config["sliding_window"] = Json();
      if (type != kMistral) config["use_sliding_window"] = false;
      return;
    }
    config["sliding_window"] = llama.sliding_window;
    if (type == kMistral) return;
    config["use_sliding_window"] = true;
    config["max_window_layers"] = 0;
  }
};

}  // namespace

const Family& llama_family() {
  static const Llama family;
  return family;
}

}  // namespace lockstep::huggingface
