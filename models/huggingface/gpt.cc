// GPT-2 and GPT-J.
#include "models/huggingface/decoder_head.h"
#include "models/huggingface/family.h"
#include "runtime/base/error.h"

namespace lockstep::huggingface {
namespace {

using Positions = GptConfig::Positions;

const GptConfig& config_of(const ModelConfig& model) { return std::get<GptConfig>(model); }

// What the two have in common. They differ in their positions.
class Gpt : public Family {
 public:
  explicit Gpt(Positions positions) : positions_(positions) {}
  const char* section() const override { return GptConfig::kName; }
  bool has(const ModelConfig& model) const override {
    return Family::has(model) && config_of(model).positions == positions_;
  }
  std::string base_prefix(const ModelConfig& /*model*/) const override { return "transformer."; }
  bool has_row_per_class(const std::string& name) const override { return name == kScoreWeight; }

 protected:
  // Reads the common fields into `gpt`, which has the family's defaults; `dropout` is the default
  // of the dropout fields. Throws ConfigError for unsupported values.
  static void read_common(ConfigFields& fields, double dropout, GptConfig& gpt);
  // Like Family::write. `type` is the model_type, `architecture` the class of transformers that
  // reads the folder.
  static void write_common(const GptConfig& gpt,
                           const char* type,
                           const char* architecture,
                           Json& config);

 private:
  Positions positions_;
};

void Gpt::read_common(ConfigFields& fields, double dropout, GptConfig& gpt) {
  gpt.layers = fields.integer("n_layer", gpt.layers);
  gpt.heads = fields.integer("n_head", gpt.heads);
  gpt.width = fields.integer("n_embd", gpt.width);
  gpt.context = fields.integer("n_positions", gpt.context);
  gpt.vocabulary = fields.integer("vocab_size", gpt.vocabulary);
  gpt.mlp_width = fields.integer("n_inner", 0);
  gpt.activation = fields.activation("activation_function", Activation::kGeluTanh);
  gpt.norm_epsilon = static_cast<float>(fields.number("layer_norm_epsilon", 1e-5));
  gpt.dropout = static_cast<float>(fields.number("resid_pdrop", dropout));
  gpt.attention_dropout = static_cast<float>(fields.number("attn_pdrop", dropout));
  if (fields.number("embd_pdrop", dropout) != fields.number("resid_pdrop", dropout))
    fields.refuse("embd_pdrop", "the value of resid_pdrop");
  if (!fields.boolean("scale_attn_weights", true)) fields.refuse("scale_attn_weights", "true");
  gpt.head = read_head(fields);
  fields.ignore(
      "n_ctx summary_activation summary_first_dropout summary_proj_to_labels "
      "summary_type summary_use_proj");
}

void Gpt::write_common(const GptConfig& gpt,
                       const char* type,
                       const char* architecture,
                       Json& config) {
  config["model_type"] = type;
  write_head(gpt.head, architecture, config);
  config["n_layer"] = gpt.layers;
  config["n_head"] = gpt.heads;
  config["n_embd"] = gpt.width;
  config["n_positions"] = gpt.context;
  config["vocab_size"] = gpt.vocabulary;
  config["n_inner"] = gpt.mlp_width > 0 ? Json(gpt.mlp_width) : Json();
  config["tie_word_embeddings"] = gpt.tied_head;
  write_activation("activation_function", gpt.activation, config);
  config["layer_norm_epsilon"] = shortest(gpt.norm_epsilon);
  config["resid_pdrop"] = shortest(gpt.dropout);
  config["embd_pdrop"] = shortest(gpt.dropout);
  config["attn_pdrop"] = shortest(gpt.attention_dropout);
}

// Hugging Face calls GPT-2's linear layers Conv1D; their matrices are (inputs, outputs).
class Gpt2 final : public Gpt {
 public:
  Gpt2() : Gpt(Positions::kLearned) {}
  std::vector<std::string> types() const override { return {"gpt2"}; }

  ModelConfig read(ConfigFields& fields) const override {
    GptConfig gpt;
    gpt.layers = 12;
    gpt.heads = 12;
    gpt.width = 768;
    gpt.context = 1024;
    gpt.vocabulary = 50257;
    read_common(fields, kDropout, gpt);
    gpt.tied_head = fields.boolean("tie_word_embeddings", true);
    if (fields.boolean("scale_attn_by_inverse_layer_idx", false))
      fields.refuse("scale_attn_by_inverse_layer_idx", "false");
    fields.ignore("reorder_and_upcast_attn");
    return gpt;
  }

  void write(const ModelConfig& model,
             const std::vector<checkpoint::NamedSlice>& /*slices*/,
             Json& config) const override {
    const GptConfig& gpt = config_of(model);
    if (!gpt.bias || !gpt.attention_bias)
      throw ConfigError("model.gpt.{}: value is false; Hugging Face's GPT-2 has biases",
                        gpt.bias ? "attention_bias" : "bias");
    if (gpt.parallel_block || gpt.head_bias)
      throw ConfigError("model.gpt.{}: value is true; Hugging Face's GPT-2 has none",
                        gpt.parallel_block ? "parallel_block" : "head_bias");
    write_common(gpt, "gpt2", "GPT2LMHeadModel", config);
  }

  std::vector<TensorPart> parts(const ModelConfig& model, const std::string& name) const override {
    TensorPart part{name};
    part.transposed = ends_with_any(
        name, {"attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"});
    if (name == "transformer.wpe.weight") part.stored_rows = config_of(model).context;
    return {part};
  }

  bool is_head(const std::string& name) const override {
    return name == "lm_head.weight" || name == kScoreWeight;
  }

  // Masks that older versions stored.
  bool is_ignored_tensor(const std::string& name) const override {
    return ends_with_any(name, {".attn.bias", ".attn.masked_bias"});
  }

  std::string tied_weight(const ModelConfig& model) const override {
    const GptConfig& gpt = config_of(model);
    return gpt.tied_head && gpt.head == DecoderHead::kTokens ? "transformer.wte.weight" : "";
  }
  std::string tied_name(const ModelConfig& model, const std::string& name) const override {
    return name == "lm_head.weight" ? tied_weight(model) : "";
  }

 private:
  static constexpr double kDropout = 0.1;  // if the folder does not specify it
};

// q, k and v of a GPT-J folder are one tensor of the model.
class Gptj final : public Gpt {
 public:
  Gptj() : Gpt(Positions::kRotary) {}
  std::vector<std::string> types() const override { return {"gptj"}; }

  ModelConfig read(ConfigFields& fields) const override {
    GptConfig gpt;
    gpt.positions = Positions::kRotary;
    gpt.parallel_block = true;
    gpt.attention_bias = false;
    gpt.tied_head = false;
    gpt.head_bias = true;
    gpt.layers = 28;
    gpt.heads = 16;
    gpt.width = 4096;
    gpt.context = 2048;
    gpt.vocabulary = 50400;
    read_common(fields, kDropout, gpt);
    gpt.rotary_size = fields.integer("rotary_dim", 64);
    // In GptConfig, 0 means that all of a head is rotated. In transformers, a model with 0 or null
    // fails when it runs.
    if (fields.is_null("rotary_dim") || gpt.rotary_size < 1)
      fields.refuse("rotary_dim", "an even number above 0");
    if (fields.boolean("tie_word_embeddings", false)) fields.refuse("tie_word_embeddings", "false");
    if (!fields.boolean("rotary", true)) fields.refuse("rotary", "true");
    return gpt;
  }

  void write(const ModelConfig& model,
             const std::vector<checkpoint::NamedSlice>& /*slices*/,
             Json& config) const override {
    const GptConfig& gpt = config_of(model);
    check(gpt);
    write_common(gpt, "gptj", "GPTJForCausalLM", config);
    config["rotary_dim"] = gpt.rotary_size > 0 ? gpt.rotary_size : gpt.width / gpt.heads;
  }

  std::vector<TensorPart> parts(const ModelConfig& /*model*/,
                                const std::string& name) const override {
    std::vector<TensorPart> parts = split_tensor(
        name, ".attn.c_attn.", {{".attn.q_proj."}, {".attn.k_proj."}, {".attn.v_proj."}});
    for (const auto& [ours, theirs] : {std::pair(".attn.c_proj.", ".attn.out_proj."),
                                       std::pair(".mlp.c_fc.", ".mlp.fc_in."),
                                       std::pair(".mlp.c_proj.", ".mlp.fc_out.")})
      if (parts.empty()) parts = split_tensor(name, ours, {{theirs}});
    if (parts.empty()) parts.push_back({name});
    return parts;
  }

  bool is_head(const std::string& name) const override {
    return name.starts_with("lm_head.") || name == kScoreWeight;
  }

  // Masks and tables of angles that older versions stored.
  bool is_ignored_tensor(const std::string& name) const override {
    return ends_with_any(name, {".attn.bias", ".attn.masked_bias", ".attn.embed_positions"});
  }

 private:
  static constexpr double kDropout = 0;  // if the folder does not specify it

  static void check(const GptConfig& gpt) {
    const auto need = [](bool is_so, const char* field, const char* value, const char* allowed) {
      if (!is_so)
        throw ConfigError(
            "model.gpt.{}: value is {}; Hugging Face's GPT-J has {}", field, value, allowed);
    };
    need(gpt.parallel_block, "parallel_block", "false", "parallel blocks");
    need(gpt.bias, "bias", "false", "biases");
    need(!gpt.attention_bias, "attention_bias", "true", "no biases in attention");
    if (gpt.head == DecoderHead::kReward) return;
    need(!gpt.tied_head, "tied_head", "true", "an untied head");
    need(gpt.head_bias, "head_bias", "false", "a bias in the head");
  }
};

}  // namespace

const Family& gpt2_family() {
  static const Gpt2 family;
  return family;
}

const Family& gptj_family() {
  static const Gptj family;
  return family;
}

}  // namespace lockstep::huggingface
