// GPT-J. q, k and v of the folder are one tensor of the model.
#include "models/huggingface/family.h"
#include "models/huggingface/gpt_fields.h"
#include "runtime/base/error.h"

namespace lockstep::huggingface {
namespace {

using Positions = GptConfig::Positions;

const GptConfig& config_of(const ModelConfig& model) { return std::get<GptConfig>(model); }

class Gptj final : public Family {
 public:
  std::vector<std::string> types() const override { return {"gptj"}; }
  const char* section() const override { return GptConfig::kName; }
  bool has(const ModelConfig& model) const override {
    return Family::has(model) && config_of(model).positions == Positions::kRotary;
  }
  std::string base_prefix(const ModelConfig& /*model*/) const override { return "transformer."; }

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
    read_gpt(fields, kDropout, gpt);
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
    write_gpt(gpt, "gptj", "GPTJForCausalLM", config);
    config["rotary_dim"] = gpt.rotary_size > 0 ? gpt.rotary_size : gpt.width / gpt.heads;
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
      const std::string their_name = renamed(ours, theirs);
      if (!their_name.empty()) return {{their_name}};
    }
    return {{name}};
  }

  bool is_head(const std::string& name) const override { return name.starts_with("lm_head."); }

  // Masks and tables of angles that older versions stored.
  bool is_ignored_tensor(const std::string& name) const override {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
           name.ends_with(".attn.embed_positions");
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
    need(!gpt.tied_head, "tied_head", "true", "an untied head");
    need(gpt.head_bias, "head_bias", "false", "a bias in the head");
  }
};

}  // namespace

const Family& gptj_family() {
  static const Gptj family;
  return family;
}

}  // namespace lockstep::huggingface
