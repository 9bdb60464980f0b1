// GPT-2 (Radford et al. 2019): token and position embeddings, blocks of pre-norm attention and MLP
// on a residual stream, a final norm, and an output matrix that is the token embedding unless
// untied. GPT-J (Wang and Komatsuzaki 2021) has rotary positions, and attention and MLP of a block
// read the same norm.
//
// Initialisation is GPT-2's: N(0, 0.02) for matrices and embeddings, the matrices that write to the
// residual stream scaled by 1/sqrt(2 * layers), biases 0, gammas of norms 1.
#include <cmath>

#include "models/language_model.h"
#include "models/residual_stream.h"
#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/add.h"
#include "runtime/graph/ops/dropout.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/ops/layer_norm.h"
#include "runtime/graph/ops/linear.h"
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

class GptBuilder {
 public:
  GptBuilder(const GptConfig& config,
             int64_t lane_batch,
             int64_t tokens,
             const graph::GraphOptions& options)
      : config_(config),
        lane_batch_(lane_batch),
        tokens_(tokens),
        builder_(options),
        stream_(builder_) {}

  graph::Graph build() {
    inputs_ = token_inputs(builder_, lane_batch_, tokens_);
    const TensorId token = matrix(kEmbedding, config_.vocabulary, config_.width, kStd);
    stream_.begin(ops::dropout(builder_, "transformer.drop", embed(token), config_.dropout));
    for (int64_t i = 0; i < config_.layers; ++i) {
      const std::string name = "transformer.h." + std::to_string(i) + ".";
      stream_.begin_block(name);
      block(name);
      stream_.end_block();
    }
    const TensorId normed = norm("transformer.ln_f");
    const TensorId head = config_.tied_head
                              ? token
                              : matrix("lm_head.weight", config_.vocabulary, config_.width, kStd);
    const TensorId bias =
        config_.head_bias ? constant("lm_head.bias", config_.vocabulary, 0) : kNoTensor;
    end_language_model(builder_, normed, head, inputs_.targets, config_.label_smoothing, bias);
    return std::move(builder_).finish();
  }

 private:
  static constexpr float kStd = 0.02f;

  // Packed samples bring their positions as ids, which are looked up like tokens.
  TensorId embed(TensorId token) {
    const std::string name = "transformer.embedding";
    const TensorId position =
        is_rotary(config_) ? kNoTensor
                           : matrix("transformer.wpe.weight", config_.context, config_.width, kStd);
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
                          3 * width,
                          kStd,
                          Activation::kNone,
                          config_.attention_bias,
                          {width, width, width});
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
    return dropout(name,
                   linear(name + ".c_proj",
                          mixed,
                          width,
                          residual_std(),
                          Activation::kNone,
                          config_.attention_bias));
  }

  TensorId mlp(const std::string& name, TensorId x) {
    const TensorId up = linear(name + ".c_fc", x, mlp_width_of(config_), kStd, config_.activation);
    return dropout(name,
                   linear(name + ".c_proj", up, config_.width, residual_std(), Activation::kNone));
  }

  // The initial standard deviation of the matrices that write to the residual stream.
  float residual_std() const { return kStd / std::sqrt(2.0f * static_cast<float>(config_.layers)); }

  TensorId dropout(const std::string& name, TensorId x) {
    return ops::dropout(builder_, name + ".dropout", x, config_.dropout);
  }

  TensorId norm(const std::string& name) {
    const TensorId gamma = constant(name + ".weight", config_.width, 1);
    const TensorId beta = config_.bias ? constant(name + ".bias", config_.width, 0) : kNoTensor;
    return stream_.norm([&](TensorId x, TensorId delta) {
      return ops::layer_norm(builder_, name, x, delta, gamma, beta, config_.norm_epsilon);
    });
  }

  TensorId linear(const std::string& name,
                  TensorId x,
                  int64_t outputs,
                  float std,
                  Activation activation,
                  bool with_bias = true,
                  std::vector<int64_t> row_parts = {}) {
    const TensorId weight = matrix(name + ".weight", outputs, builder_.shape(x).columns(), std);
    if (!row_parts.empty()) builder_.set_row_parts(weight, std::move(row_parts));
    const TensorId bias =
        config_.bias && with_bias ? constant(name + ".bias", outputs, 0) : kNoTensor;
    return ops::linear(builder_, name, x, weight, bias, activation);
  }

  TensorId matrix(const std::string& name, int64_t rows, int64_t columns, float std) {
    return builder_.parameter(
        name, {rows, columns}, {graph::Initializer::Kind::kNormal, std}, true);
  }

  TensorId constant(const std::string& name, int64_t width, float value) {
    return builder_.parameter(name, {width}, {graph::Initializer::Kind::kConstant, value}, false);
  }

  const GptConfig& config_;
  int64_t lane_batch_;
  int64_t tokens_;
  graph::GraphBuilder builder_;
  TokenInputs inputs_;
  ResidualStream stream_;  // (B, T, C)
};

class Gpt final : public LanguageModelFamily<GptConfig> {
 public:
  explicit Gpt(const GptConfig& config) : LanguageModelFamily(config, kEmbedding) {}

  void check() const override {
    if (config_.width % config_.heads != 0) {
      config::refuse_value("model.gpt.heads",
                           config_.heads,
                           fmt::format("a divisor of model.gpt.width, which is {}", config_.width));
    }
    if (config_.head_bias && config_.tied_head)
      config::refuse_value(
          "model.gpt.head_bias", "true", "false, or true with model.gpt.tied_head false");
    check_rotary();
  }

  graph::Graph build(const ModelIo& /*io*/,
                     int64_t lane_batch,
                     int64_t tokens,
                     const graph::GraphOptions& options) const override {
    return GptBuilder(config_, lane_batch, tokens > 0 ? tokens : config_.context, options).build();
  }

  // 6 operations for each parameter that multiplies a token, plus those of causal attention over
  // half of all pairs of tokens.
  double flops_per_sample(const ModelIo& /*io*/) const override {
    const auto width = static_cast<double>(config_.width),
               layers = static_cast<double>(config_.layers),
               context = static_cast<double>(config_.context),
               vocabulary = static_cast<double>(config_.vocabulary);
    // Blocks, norms, and the head or shared embedding. Positions and a separate input embedding
    // multiply nothing. Biases count if the original network has them.
    const auto mlp = static_cast<double>(mlp_width_of(config_));
    const double norms = config_.parallel_block ? 2 : 4;  // gammas and betas of a block
    const double attention_biases = config_.attention_bias ? 4 : 0;
    const double block =
        4 * width * width + 2 * width * mlp + mlp + (norms + attention_biases + 1) * width;
    const double parameters =
        layers * block + 2 * width + vocabulary * width + (config_.head_bias ? vocabulary : 0);
    return context * (6 * parameters + 6 * layers * width * context);
  }

 private:
  void check_rotary() const {
    const int64_t size = config_.rotary_size, head_size = head_size_of(config_);
    const char* const field = "model.gpt.rotary_size";
    if (!is_rotary(config_)) {
      if (size > 0)
        config::refuse_value(field, size, "0; above 0 only with model.gpt.positions ROTARY");
      return;
    }
    if (size % 2 != 0 || size > head_size)
      config::refuse_value(
          field,
          size,
          fmt::format("an even number up to model.gpt.width / model.gpt.heads, which is {}",
                      head_size));
    if (size == 0 && head_size % 2 != 0)
      config::refuse_value(
          field,
          size,
          fmt::format("an even number above 0, because model.gpt.width / model.gpt.heads is "
                      "{}",
                      head_size));
  }
};

}  // namespace

template <>
std::unique_ptr<const Model> make_model(const GptConfig& config) {
  return std::make_unique<Gpt>(config);
}

}  // namespace lockstep::models
