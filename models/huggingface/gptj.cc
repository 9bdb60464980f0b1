// GPT-J. What one product computes is one tensor here: q, k and v.
#include "models/huggingface/family.h"
#include "runtime/base/error.h"

namespace lockstep::huggingface {
namespace {

using Positions = GptConfig::Positions;

const GptConfig& of(const ModelConfig& model) { return std::get<GptConfig>(model); }

class Gptj final : public Family {
 public:
  std::vector<std::string> types() const override { return {"gptj"}; }
  const char* section() const override { return GptConfig::kName; }
  bool has(const ModelConfig& model) const override {
    return Family::has(model) && of(model).positions == Positions::kRotary;
  }
  std::string base_prefix(const ModelConfig& /*model*/) const override { return "transformer."; }

  ModelConfig read(ConfigFields& fields) const override {
    GptConfig gpt;
    gpt.positions = Positions::kRotary;
    gpt.parallel_block = true;
    gpt.attention_bias = false;
    gpt.tied_head = false;
    gpt.head_bias = true;
    gpt.layers = fields.integer("n_layer", 28);
    gpt.heads = fields.integer("n_head", 16);
    gpt.width = fields.integer("n_embd", 4096);
    gpt.context = fields.integer("n_positions", 2048);
    gpt.vocabulary = fields.integer("vocab_size", 50400);
    gpt.rotary_size = fields.integer("rotary_dim", 64);
    gpt.mlp_width = fields.integer("n_inner", 0);
    gpt.activation = fields.activation("activation_function", Activation::kGeluTanh);
    gpt.norm_epsilon = static_cast<float>(fields.number("layer_norm_epsilon", 1e-5));
    gpt.dropout = static_cast<float>(fields.number("resid_pdrop", 0));
    if (fields.number("embd_pdrop", 0) != fields.number("resid_pdrop", 0))
      fields.refuse("embd_pdrop", "the value of resid_pdrop");
    if (fields.boolean("tie_word_embeddings", false)) fields.refuse("tie_word_embeddings", "false");
    if (!fields.boolean("scale_attn_weights", true)) fields.refuse("scale_attn_weights", "true");
    if (!fields.boolean("rotary", true)) fields.refuse("rotary", "true");
    fields.pass_over({"attn_pdrop",
                      "n_ctx",
                      "summary_activation",
                      "summary_first_dropout",
                      "summary_proj_to_labels",
                      "summary_type",
                      "summary_use_proj"});
    return gpt;
  }

  std::vector<std::string> not_applied(ConfigFields& fields) const override {
    if (fields.number("attn_pdrop", 0) == 0) return {};
    return {"attn_pdrop (dropout of the probabilities of attention)"};
  }

  void write(const ModelConfig& model,
             const std::vector<NamedSlice>& /*slices*/,
             Json& config) const override {
    const GptConfig& gpt = of(model);
    check(gpt);
    config["model_type"] = "gptj";
    if (!config.contains("architectures"))
      config["architectures"] = Json::array({Json("GPTJForCausalLM")});
    config["n_layer"] = gpt.layers;
    config["n_head"] = gpt.heads;
    config["n_embd"] = gpt.width;
    config["n_positions"] = gpt.context;
    config["vocab_size"] = gpt.vocabulary;
    config["rotary_dim"] = gpt.rotary_size > 0 ? gpt.rotary_size : gpt.width / gpt.heads;
    config["n_inner"] = gpt.mlp_width > 0 ? Json(gpt.mlp_width) : Json();
    config["tie_word_embeddings"] = false;
    write_activation("activation_function", gpt.activation, config);
    config["resid_pdrop"] = shortest(gpt.dropout);
    config["embd_pdrop"] = shortest(gpt.dropout);
    if (!config.contains("attn_pdrop")) config["attn_pdrop"] = 0.0;
    config["layer_norm_epsilon"] = shortest(gpt.norm_epsilon);
  }

  std::vector<TensorPart> parts(const ModelConfig& /*model*/,
                                const std::string& name) const override {
    const auto renamed = [&](const std::string& ours, const std::string& theirs) {
      const size_t at = name.find(ours);
      return at == std::string::npos ? ""
                                     : name.substr(0, at) + theirs + name.substr(at + ours.size());
    };
    if (name.find(".attn.c_attn.") != std::string::npos) {
      std::vector<TensorPart> parts;
      for (const char* of : {".attn.q_proj.", ".attn.k_proj.", ".attn.v_proj."})
        parts.push_back({.name = renamed(".attn.c_attn.", of), .equal_parts = 3});
      return parts;
    }
    for (const auto& [ours, theirs] : {std::pair(".attn.c_proj.", ".attn.out_proj."),
                                       std::pair(".mlp.c_fc.", ".mlp.fc_in."),
                                       std::pair(".mlp.c_proj.", ".mlp.fc_out.")}) {
      const std::string there = renamed(ours, theirs);
      if (!there.empty()) return {{there}};
    }
    return {{name}};
  }

  bool is_head(const std::string& name) const override { return name.starts_with("lm_head."); }

  // Masks and tables of angles, which older versions stored.
  bool is_no_weight(const std::string& name) const override {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
           name.ends_with(".attn.embed_positions");
  }

 private:
  static void check(const GptConfig& gpt) {
    const auto need = [](bool is_so, const char* field, const char* value, const char* allowed) {
      if (!is_so)
        throw ConfigError(
            "model.gpt.{}: value is {}; Hugging Face's GPT-J has {}", field, value, allowed);
    };
    need(gpt.parallel_block, "parallel_block", "false", "parallel blocks");
    need(gpt.bias, "bias", "false", "biases");
    need(!gpt.attention_bias, "attention_bias", "true", "no biases of attention");
    need(!gpt.tied_head, "tied_head", "true", "a head of its own");
    need(gpt.head_bias, "head_bias", "false", "biases of the head");
  }
};

}  // namespace

const Family& gptj_family() {
  static const Gptj family;
  return family;
}

}  // namespace lockstep::huggingface
