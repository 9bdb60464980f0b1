// Llama (Touvron et al. 2023) and the models with its architecture (Mistral, Qwen2, Qwen3, SmolLM):
// token embedding, blocks of attention with rotary positions and of a gated MLP on a residual
// stream, RMS norms before both, a final norm, and an output matrix, which may be tied to the
// embedding. Linear layers of blocks may have biases; the heads of q and k may be normed.
//
// Tensors are named as in Hugging Face's files, except that q, k and v are one matrix, qkv_proj,
// with their rows one after the other, and so are gate and up, in gate_up_proj.
//
// Initialisation: N(0, 0.02) for matrices and embeddings, biases 0, gammas of norms 1.
#include <algorithm>

#include "models/language_model.h"
#include "models/transformer.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/ops/gated_activation.h"
#include "runtime/graph/ops/qk_norm.h"
#include "runtime/graph/ops/rotary.h"
#include "runtime/graph/ops/row_norm.h"

namespace lockstep::models {
namespace {

constexpr char kEmbedding[] = "model.embed_tokens.weight";

// The sizes of the config, with defaults for those that it leaves out.
struct LlamaSizes {
  int64_t width, heads, kv_heads, head_size, mlp_width;

  explicit LlamaSizes(const LlamaConfig& config)
      : width(config.width),
        heads(config.heads),
        kv_heads(config.kv_heads > 0 ? config.kv_heads : config.heads),
        head_size(config.head_size > 0 ? config.head_size : config.width / config.heads),
        mlp_width(config.mlp_width) {}

  int64_t packed() const { return (heads + 2 * kv_heads) * head_size; }
  int64_t mixed() const { return heads * head_size; }
};

graph::RotaryScaling scaling_of(const LlamaConfig& config) {
  switch (config.rope_scaling) {
    case LlamaConfig::RopeScaling::kNoScaling: return graph::RotaryScaling::kNone;
    case LlamaConfig::RopeScaling::kLinear: return graph::RotaryScaling::kLinear;
    case LlamaConfig::RopeScaling::kDynamic: return graph::RotaryScaling::kDynamicNtk;
    case LlamaConfig::RopeScaling::kLlama3: return graph::RotaryScaling::kLlama3;
  }
  return graph::RotaryScaling::kNone;
}

class LlamaLayers : private TransformerLayers {
 public:
  LlamaLayers(const LlamaConfig& config, graph::GraphBuilder& builder, const TokenInputs& inputs)
      : TransformerLayers(builder),
        config_(config),
        sizes_(config),
        inputs_(inputs),
        stream_(builder) {}

  void add() {
    if (config_.head == DecoderHead::kReward)
      return end_reward_model(builder_, hidden_states().x, inputs_.segments);
    end_decoder(builder_, inputs_, config_.label_smoothing, [&] { return network(); });
  }

 private:
  // With the embedding as `head`.
  DecoderOutput hidden_states() {
    const TensorId token = matrix(kEmbedding, config_.vocabulary, sizes_.width);
    stream_.begin(ops::embedding(builder_, "model.embed_tokens", inputs_.tokens, token, kNoTensor));
    stream_.add_blocks(
        config_.layers, "model.layers.", [&](const std::string& name) { block(name); });
    return {norm("model.norm"), token};
  }

  DecoderOutput network() {
    DecoderOutput output = hidden_states();
    if (!config_.tied_head)
      output.head = matrix("lm_head.weight", config_.vocabulary, sizes_.width);
    return output;
  }

  void block(const std::string& name) {
    stream_.add(attention(name + "self_attn.", norm(name + "input_layernorm")));
    stream_.add(mlp(name + "mlp.", norm(name + "post_attention_layernorm")));
  }

  TensorId attention(const std::string& name, TensorId x) {
    const int64_t queries = sizes_.mixed(), keys = sizes_.kv_heads * sizes_.head_size;
    const TensorId qkv = linear(
        name + "qkv_proj",
        x,
        {.outputs = sizes_.packed(), .bias = config_.qkv_bias, .row_parts = {queries, keys, keys}});
    graph::RotaryAttributes rotary = {.head_size = sizes_.head_size,
                                      .rotated_heads = sizes_.heads + sizes_.kv_heads,
                                      .rotary_size = sizes_.head_size,
                                      .theta = config_.rope_theta,
                                      .scaling = scaling_of(config_),
                                      .factor = config_.rope_factor,
                                      .low_freq_factor = config_.rope_low_freq_factor,
                                      .high_freq_factor = config_.rope_high_freq_factor,
                                      .original_context = config_.rope_original_context,
                                      .length = builder_.options().sample_tokens};
    // With a cache, the context is as long as the cache, however few tokens a call processes.
    if (const int64_t context = builder_.options().cached_tokens; context > 0) {
      rotary.theta = graph::rotary_theta(rotary, context);
      if (rotary.scaling == graph::RotaryScaling::kDynamicNtk)
        rotary.scaling = graph::RotaryScaling::kNone;
    }
    const TensorId normed = config_.qk_norm ? norm_heads(name, qkv) : qkv;
    const TensorId turned =
        ops::rotary(builder_, name + "rotary", normed, inputs_.positions, rotary);
    const TensorId mixed = text_attention(builder_,
                                          name + "attn",
                                          turned,
                                          {.heads = sizes_.heads,
                                           .causal = true,
                                           .kv_heads = sizes_.kv_heads,
                                           .window = config_.sliding_window,
                                           .dropout = config_.attention_dropout},
                                          inputs_);
    return linear(name + "o_proj", mixed, {.outputs = sizes_.width, .bias = config_.output_bias});
  }

  TensorId norm_heads(const std::string& name, TensorId qkv) {
    const TensorId gamma_q = constant(name + "q_norm.weight", sizes_.head_size, 1);
    const TensorId gamma_k = constant(name + "k_norm.weight", sizes_.head_size, 1);
    return ops::qk_norm(
        builder_,
        name + "qk_norm",
        qkv,
        gamma_q,
        gamma_k,
        {.heads = sizes_.heads, .kv_heads = sizes_.kv_heads, .epsilon = config_.norm_epsilon});
  }

  TensorId mlp(const std::string& name, TensorId x) {
    const TensorId up = linear(name + "gate_up_proj",
                               x,
                               {.outputs = 2 * sizes_.mlp_width,
                                .bias = config_.mlp_bias,
                                .row_parts = {sizes_.mlp_width, sizes_.mlp_width}});
    const TensorId gated = ops::gated_activation(builder_, name + "act", up, config_.activation);
    return linear(name + "down_proj", gated, {.outputs = sizes_.width, .bias = config_.mlp_bias});
  }

  TensorId norm(const std::string& name) {
    const TensorId gamma = constant(name + ".weight", sizes_.width, 1);
    return stream_.norm([&](TensorId x, TensorId delta) {
      return ops::rms_norm(builder_, name, x, delta, gamma, config_.norm_epsilon);
    });
  }

  const LlamaConfig& config_;
  const LlamaSizes sizes_;
  const TokenInputs inputs_;
  ResidualStream stream_;  // (B, T, C)
};

class Llama final : public LanguageModelFamily<LlamaConfig> {
 public:
  explicit Llama(const LlamaConfig& config) : LanguageModelFamily(config, kEmbedding) {}

  void check() const override {
    if (config_.head_size == 0 && config_.width % config_.heads != 0)
      config::refuse_value("model.llama.heads",
                           config_.heads,
                           "a divisor of model.llama.width, which is {}, or any number if "
                           "model.llama.head_size is set",
                           config_.width);
    const LlamaSizes sizes(config_);
    if (sizes.head_size % 2 != 0)
      config::refuse_value("model.llama.head_size",
                           sizes.head_size,
                           "an even number, because rotary positions rotate pairs of elements");
    if (sizes.heads % sizes.kv_heads != 0)
      config::refuse_value("model.llama.kv_heads",
                           sizes.kv_heads,
                           "a divisor of model.llama.heads, which is {}",
                           sizes.heads);
    if (config_.rope_scaling == LlamaConfig::RopeScaling::kDynamic && sizes.head_size == 2)
      config::refuse_value(
          "model.llama.head_size", 2, "4 or more with model.llama.rope_scaling DYNAMIC");
    if (config_.rope_high_freq_factor <= config_.rope_low_freq_factor)
      config::refuse_value("model.llama.rope_high_freq_factor",
                           config_.rope_high_freq_factor,
                           "above model.llama.rope_low_freq_factor, which is {}",
                           config_.rope_low_freq_factor);
  }

  // 6 operations for each parameter that multiplies a token, plus those of causal attention over
  // half of all pairs of tokens, or over the pairs within the sliding window.
  double flops_per_sample(const ModelIo& /*io*/) const override {
    const LlamaSizes sizes(config_);
    const auto width = static_cast<double>(sizes.width), mixed = static_cast<double>(sizes.mixed()),
               layers = static_cast<double>(config_.layers),
               context = static_cast<double>(config_.context);
    const double reach = config_.sliding_window > 0
                             ? std::min(context, static_cast<double>(config_.sliding_window))
                             : context;
    const double pairs = 2 * reach - reach * reach / context;  // of a token, counted twice
    const double block = width * (static_cast<double>(sizes.packed()) + mixed +
                                  3 * static_cast<double>(sizes.mlp_width) + 2);
    const double parameters = layers * block + width + outputs_of_head() * width;
    return context * (6 * parameters + 6 * layers * mixed * pairs);
  }

 private:
  void add_layers(graph::GraphBuilder& builder, const TokenInputs& inputs) const override {
    LlamaLayers(config_, builder, inputs).add();
  }
};

}  // namespace

template <>
std::unique_ptr<const Model> make_model(const LlamaConfig& config) {
  return std::make_unique<Llama>(config);
}

}  // namespace lockstep::models
