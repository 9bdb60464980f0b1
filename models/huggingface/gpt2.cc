// GPT-2. Hugging Face's files hold the matrices of its linear layers, which it calls Conv1D, as
// (inputs, outputs).
#include "models/huggingface/family.h"
#include "runtime/base/error.h"

namespace lockstep::huggingface {
namespace {

bool ends_with_any(const std::string& name, std::initializer_list<const char*> ends) {
  for (const char* end : ends) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

class Gpt2 final : public Family {
 public:
  std::vector<std::string> types() const override { return {"gpt2"}; }
  const char* section() const override { return GptConfig::kName; }
  bool has(const ModelConfig& model) const override {
    return Family::has(model) &&
           std::get<GptConfig>(model).positions == GptConfig::Positions::kLearned;
  }
  std::string base_prefix(const ModelConfig& /*model*/) const override { return "transformer."; }

  ModelConfig read(ConfigFields& fields) const override {
    GptConfig gpt;
    gpt.layers = fields.integer("n_layer", 12);
    gpt.heads = fields.integer("n_head", 12);
    gpt.width = fields.integer("n_embd", 768);
    gpt.context = fields.integer("n_positions", 1024);
    gpt.vocabulary = fields.integer("vocab_size", 50257);
    gpt.activation = fields.activation("activation_function", Activation::kGeluTanh);
    gpt.tied_head = fields.boolean("tie_word_embeddings", true);
    gpt.dropout = static_cast<float>(fields.number("resid_pdrop", 0.1));
    if (fields.number("embd_pdrop", 0.1) != fields.number("resid_pdrop", 0.1))
      fields.refuse("embd_pdrop", "the value of resid_pdrop");
    gpt.mlp_width = fields.integer("n_inner", 0);
    gpt.norm_epsilon = static_cast<float>(fields.number("layer_norm_epsilon", 1e-5));
    if (!fields.boolean("scale_attn_weights", true)) fields.refuse("scale_attn_weights", "true");
    if (fields.boolean("scale_attn_by_inverse_layer_idx", false))
      fields.refuse("scale_attn_by_inverse_layer_idx", "false");
    fields.pass_over({"attn_pdrop",
                      "n_ctx",
                      "reorder_and_upcast_attn",
                      "summary_activation",
                      "summary_first_dropout",
                      "summary_proj_to_labels",
                      "summary_type",
                      "summary_use_proj"});
    return gpt;
  }

  std::vector<std::string> not_applied(ConfigFields& fields) const override {
    if (fields.number("attn_pdrop", 0.1) == 0) return {};
    return {"attn_pdrop (dropout of the probabilities of attention)"};
  }

  void write(const ModelConfig& model,
             const std::vector<NamedSlice>& /*slices*/,
             Json& config) const override {
    const auto& gpt = std::get<GptConfig>(model);
    if (!gpt.bias || !gpt.attention_bias)
      throw ConfigError("model.gpt.{}: value is false; Hugging Face's GPT-2 has biases",
                        gpt.bias ? "attention_bias" : "bias");
    if (gpt.parallel_block || gpt.head_bias)
      throw ConfigError("model.gpt.{}: value is true; Hugging Face's GPT-2 has none",
                        gpt.parallel_block ? "parallel_block" : "head_bias");
    config["model_type"] = "gpt2";
    if (!config.contains("architectures"))
      config["architectures"] = Json::array({Json("GPT2LMHeadModel")});
    config["n_layer"] = gpt.layers;
    config["n_head"] = gpt.heads;
    config["n_embd"] = gpt.width;
    config["n_positions"] = gpt.context;
    config["vocab_size"] = gpt.vocabulary;
    config["tie_word_embeddings"] = gpt.tied_head;
    write_activation("activation_function", gpt.activation, config);
    config["resid_pdrop"] = shortest(gpt.dropout);
    config["embd_pdrop"] = shortest(gpt.dropout);
    if (!config.contains("attn_pdrop")) config["attn_pdrop"] = 0.0;
    config["n_inner"] = gpt.mlp_width > 0 ? Json(gpt.mlp_width) : Json();
    config["layer_norm_epsilon"] = shortest(gpt.norm_epsilon);
  }

  std::vector<TensorPart> parts(const ModelConfig& model, const std::string& name) const override {
    TensorPart part{name};
    part.transposed = ends_with_any(
        name, {"attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"});
    if (name == "transformer.wpe.weight") part.stored_rows = std::get<GptConfig>(model).context;
    return {part};
  }

  bool is_head(const std::string& name) const override { return name == "lm_head.weight"; }

  // Masks, which older versions stored.
  bool is_no_weight(const std::string& name) const override {
    return ends_with_any(name, {".attn.bias", ".attn.masked_bias"});
  }

  std::string tied_name(const ModelConfig& model, const std::string& name) const override {
    return std::get<GptConfig>(model).tied_head && name == "lm_head.weight"
               ? "transformer.wte.weight"
               : "";
  }
};

}  // namespace

const Family& gpt2_family() {
  static const Gpt2 family;
  return family;
}

}  // namespace lockstep::huggingface
