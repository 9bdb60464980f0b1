// GPT-2. Hugging Face calls its linear layers Conv1D; their matrices are (inputs, outputs).
#include "models/huggingface/family.h"
#include "models/huggingface/gpt_fields.h"
#include "runtime/base/error.h"

namespace lockstep::huggingface {
namespace {

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
    gpt.layers = 12;
    gpt.heads = 12;
    gpt.width = 768;
    gpt.context = 1024;
    gpt.vocabulary = 50257;
    read_gpt(fields, kDropout, gpt);
    gpt.tied_head = fields.boolean("tie_word_embeddings", true);
    if (fields.boolean("scale_attn_by_inverse_layer_idx", false))
      fields.refuse("scale_attn_by_inverse_layer_idx", "false");
    fields.ignore({"reorder_and_upcast_attn"});
    return gpt;
  }

  void write(const ModelConfig& model,
             const std::vector<checkpoint::NamedSlice>& /*slices*/,
             Json& config) const override {
    const auto& gpt = std::get<GptConfig>(model);
    if (!gpt.bias || !gpt.attention_bias)
      throw ConfigError("model.gpt.{}: value is false; Hugging Face's GPT-2 has biases",
                        gpt.bias ? "attention_bias" : "bias");
    if (gpt.parallel_block || gpt.head_bias)
      throw ConfigError("model.gpt.{}: value is true; Hugging Face's GPT-2 has none",
                        gpt.parallel_block ? "parallel_block" : "head_bias");
    write_gpt(gpt, "gpt2", "GPT2LMHeadModel", config);
  }

  std::vector<TensorPart> parts(const ModelConfig& model, const std::string& name) const override {
    TensorPart part{name};
    part.transposed = ends_with_any(
        name, {"attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"});
    if (name == "transformer.wpe.weight") part.stored_rows = std::get<GptConfig>(model).context;
    return {part};
  }

  bool is_head(const std::string& name) const override { return name == "lm_head.weight"; }

  // Masks that older versions stored.
  bool is_ignored_tensor(const std::string& name) const override {
    return ends_with_any(name, {".attn.bias", ".attn.masked_bias"});
  }

  std::string tied_weight(const ModelConfig& model) const override {
    return std::get<GptConfig>(model).tied_head ? "transformer.wte.weight" : "";
  }
  std::string tied_name(const ModelConfig& model, const std::string& name) const override {
    return name == "lm_head.weight" ? tied_weight(model) : "";
  }

 private:
  static constexpr double kDropout = 0.1;  // if the folder does not specify it
};

}  // namespace

const Family& gpt2_family() {
  static const Gpt2 family;
  return family;
}

}  // namespace lockstep::huggingface
