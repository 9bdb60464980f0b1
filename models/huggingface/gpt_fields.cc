#include "models/huggingface/gpt_fields.h"

namespace lockstep::huggingface {

void read_gpt(ConfigFields& fields, double dropout, GptConfig& gpt) {
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
  fields.ignore({"n_ctx",
                 "summary_activation",
                 "summary_first_dropout",
                 "summary_proj_to_labels",
                 "summary_type",
                 "summary_use_proj"});
}

void write_gpt(const GptConfig& gpt, const char* type, const char* architecture, Json& config) {
  config["model_type"] = type;
  config["architectures"] = Json::array({Json(architecture)});
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

}  // namespace lockstep::huggingface
