// GPT-2 (Radford et al. 2019): token and position embeddings, blocks of pre-norm attention and MLP
// on a residual stream, a final norm, and an output matrix that is the token embedding unless
// untied. GPT-J (Wang and Komatsuzaki 2021) has rotary positions, and attention and MLP of a block
// read the same norm.
//
// Initialisation is GPT-2's: N(0, 0.02) for matrices and embeddings, the matrices that write to the
// residual stream scaled by 1/sqrt(2 * layers), biases 0, gammas of norms 1.
#include <cmath>

#include "models/language_model.h"
#include "models/transformer.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/add.h"
#include "runtime/graph/ops/dropout.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/ops/rotary.h"

namespace lockstep::models {
namespace {

constexpr char kEmbedding[] = "transformer.wte.weight";

bool is_rotary(const GptConfig& config) {
  return config.positions == GptConfig::Positions::kRotary;
}

int64_t head_size_of(const GptConfig& config) { return config.width / config.heads; }

int64_t mlp_width_of(const GptConfig& config) {
  return config.mlp_width > 0 ? config.mlp_width : 4 * config.width;
}

class GptLayers : private TransformerLayers {
 public:
  GptLayers(const GptConfig& config, graph::GraphBuilder& builder, const TokenInputs& inputs)
      : TransformerLayers(builder), config_(config), inputs_(inputs), stream_(builder) {}

  void add() {
    if (config_.head == DecoderHead::kReward)
      return end_reward_model(builder_, hidden_states().x, inputs_.segments);
    end_decoder(builder_, inputs_, config_.label_smoothing, [&] { return network(); });
  }

 private:
  // With the embedding as `head`.
  DecoderOutput hidden_states() {
    const TensorId token = matrix(kEmbedding, config_.vocabulary, config_.width);
    stream_.begin(ops::dropout(builder_, "transformer.drop", embed(token), config_.dropout));
    stream_.add_blocks(
        config_.layers, "transformer.h.", [&](const std::string& name) { block(name); });
    return {norm("transformer.ln_f"), token};
  }

  DecoderOutput network() {
    DecoderOutput output = hidden_states();
    if (!config_.tied_head)
      output.head = matrix("lm_head.weight", config_.vocabulary, config_.width);
    if (config_.head_bias) output.bias = constant("lm_head.bias", config_.vocabulary, 0);
    return output;
  }

  // Packed samples bring their positions as ids, which are looked up like tokens.
  TensorId embed(TensorId token) {
    const std::string name = "transformer.embedding";
    const TensorId position =
        is_rotary(config_) ? kNoTensor
                           : matrix("transformer.wpe.weight", config_.context, config_.width);
    if (inputs_.positions == kNoTensor || position == kNoTensor)
      return ops::embedding(builder_, name, inputs_.tokens, token, position);
    return ops::add(
        builder_,
        name,
        ops::embedding(builder_, name + ".tokens", inputs_.tokens, token, kNoTensor),
        ops::embedding(builder_, name + ".positions", inputs_.positions, position, kNoTensor));
  }

  // One transformer block. Each half norms the residual stream and adds a branch to it. In a
  // parallel block both branches read the first norm, and their sum is added.
  void block(const std::string& name) {
    const TensorId normed = norm(name + "ln_1");
    const TensorId attention = attend(name + "attn", normed);
    if (config_.parallel_block) {
      stream_.add(ops::add(builder_, name + "branches", attention, mlp(name + "mlp", normed)));
      return;
    }
    stream_.add(attention);
    stream_.add(mlp(name + "mlp", norm(name + "ln_2")));
  }

  // x (B, T, C)
  TensorId attend(const std::string& name, TensorId x) {
    const int64_t width = config_.width;
    TensorId qkv = linear(name + ".c_attn",
                          x,
                          {.outputs = 3 * width,
                           .bias = config_.bias && config_.attention_bias,
                           .row_parts = {width, width, width}});
    if (is_rotary(config_)) {
      const int64_t head_size = head_size_of(config_);
      qkv = ops::rotary(builder_,
                        name + ".rotary",
                        qkv,
                        inputs_.positions,
                        {.head_size = head_size,
                         .rotated_heads = 2 * config_.heads,
                         .rotary_size = config_.rotary_size > 0 ? config_.rotary_size : head_size,
                         .interleaved = true});
    }
    const TensorId mixed = text_attention(
        builder_,
        name,
        qkv,
        {.heads = config_.heads, .causal = true, .dropout = config_.attention_dropout},
        inputs_);
    return to_stream(name, mixed, config_.attention_bias);
  }

  TensorId mlp(const std::string& name, TensorId x) {
    const TensorId up = linear(
        name + ".c_fc",
        x,
        {.outputs = mlp_width_of(config_), .activation = config_.activation, .bias = config_.bias});
    return to_stream(name, up, true);
  }

  // The layer whose outputs are added to the residual stream.
  TensorId to_stream(const std::string& name, TensorId x, bool bias) {
    const float std = kStd / std::sqrt(2.0f * static_cast<float>(config_.layers));
    const TensorId y =
        linear(name + ".c_proj",
               x,
               {.outputs = config_.width, .bias = config_.bias && bias, .initial = {kNormal, std}});
    return ops::dropout(builder_, name + ".dropout", y, config_.dropout);
  }

  TensorId norm(const std::string& name) {
    return stream_.norm([&](TensorId x, TensorId delta) {
      return layer_norm(name, x, delta, config_.norm_epsilon, config_.bias);
    });
  }

  const GptConfig& config_;
  const TokenInputs inputs_;
  ResidualStream stream_;  // (B, T, C)
};

class Gpt final : public LanguageModelFamily<GptConfig> {
 public:
  explicit Gpt(const GptConfig& config) : LanguageModelFamily(config, kEmbedding) {}

  void check() const override {
    check_heads(GptConfig::kName, config_.heads, config_.width);
    if (config_.head_bias && config_.tied_head)
      config::refuse_value(
          "model.gpt.head_bias", "true", "false, or true with model.gpt.tied_head false");
    check_rotary();
  }

  // 6 operations for each parameter that multiplies a token, plus those of causal attention over
  // half of all pairs of tokens.
  double flops_per_sample(const ModelIo& /*io*/) const override {
    const auto width = static_cast<double>(config_.width),
               layers = static_cast<double>(config_.layers),
               context = static_cast<double>(config_.context), outputs = outputs_of_head();
    // Blocks, norms, and the head or shared embedding. Positions and a separate input embedding
    // multiply nothing. Biases count if the original network has them.
    const auto mlp = static_cast<double>(mlp_width_of(config_));
    const double norms = config_.parallel_block ? 2 : 4;  // gammas and betas of a block
    const double attention_biases = config_.attention_bias ? 4 : 0;
    const double block =
        4 * width * width + 2 * width * mlp + mlp + (norms + attention_biases + 1) * width;
    const double parameters =
        layers * block + 2 * width + outputs * width + (config_.head_bias ? outputs : 0);
    return context * (6 * parameters + 6 * layers * width * context);
  }

 private:
  void add_layers(graph::GraphBuilder& builder, const TokenInputs& inputs) const override {
    GptLayers(config_, builder, inputs).add();
  }

  void check_rotary() const {
    const int64_t size = config_.rotary_size, head_size = head_size_of(config_);
    const char* const field = "model.gpt.rotary_size";
    if (!is_rotary(config_)) {
      if (size > 0)
        config::refuse_value(field, size, "0; above 0 only with model.gpt.positions ROTARY");
      return;
    }
    if (size % 2 != 0 || size > head_size)
      config::refuse_value(field,
                           size,
                           "an even number up to model.gpt.width / model.gpt.heads, which is {}",
                           head_size);
    if (size == 0 && head_size % 2 != 0)
      config::refuse_value(field,
                           size,
                           "an even number above 0, because model.gpt.width / model.gpt.heads is "
                           "{}",
                           head_size);
  }
};

}  // namespace

template <>
std::unique_ptr<const Model> make_model(const GptConfig& config) {
  return std::make_unique<Gpt>(config);
}

}  // namespace lockstep::models
