// GPT-2 (Radford et al. 2019): token and position embedding, blocks of pre-norm attention and MLP
// on a residual stream, a final norm, and an output matrix that is the token embedding unless
// untied.
//
// Initialisation as GPT-2's: N(0, 0.02) for matrices and embeddings, the matrices that write to the
// residual stream scaled by 1/sqrt(2 * layers), biases 0, gammas of norms 1.
#include <cmath>

#include "models/language_model.h"
#include "models/model.h"
#include "models/residual_stream.h"
#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/add.h"
#include "runtime/graph/ops/attention.h"
#include "runtime/graph/ops/dropout.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/ops/layer_norm.h"
#include "runtime/graph/ops/linear.h"

namespace lockstep {
namespace {

constexpr char kEmbedding[] = "transformer.wte.weight";

class GptBuilder {
 public:
  GptBuilder(const GptConfig& config,
             int64_t lane_batch,
             int64_t tokens,
             const GraphOptions& options)
      : config_(config),
        lane_batch_(lane_batch),
        tokens_(tokens),
        builder_(options),
        stream_(builder_) {}

  Graph build() {
    inputs_ = token_inputs(builder_, lane_batch_, tokens_);
    const TensorId token = matrix(kEmbedding, config_.vocabulary, config_.width, kStd);
    const TensorId position =
        matrix("transformer.wpe.weight", config_.context, config_.width, kStd);

    stream_.begin(
        ops::dropout(builder_, "transformer.drop", embed(token, position), config_.dropout));
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
    end_language_model(builder_, normed, head, inputs_.targets, config_.label_smoothing);
    return std::move(builder_).finish();
  }

 private:
  static constexpr float kStd = 0.02f;

  // Positions of packed samples are looked up like tokens.
  TensorId embed(TensorId token, TensorId position) {
    const std::string name = "transformer.embedding";
    if (inputs_.positions == kNoTensor)
      return ops::embedding(builder_, name, inputs_.tokens, token, position);
    return ops::add(
        builder_,
        name,
        ops::embedding(builder_, name + ".tokens", inputs_.tokens, token, kNoTensor),
        ops::embedding(builder_, name + ".positions", inputs_.positions, position, kNoTensor));
  }

  // One transformer block. Each half norms the residual stream and adds a branch to it.
  void block(const std::string& name) {
    const int64_t width = config_.width;
    const float residual_std = kStd / std::sqrt(2.0f * static_cast<float>(config_.layers));
    const TensorId qkv = linear(
        name + "attn.c_attn", norm(name + "ln_1"), width, 3 * width, kStd, Activation::kNone);
    const TensorId mixed = ops::attention(
        builder_, name + "attn", qkv, {.heads = config_.heads, .causal = true}, inputs_.documents);
    branch(name + "attn.",
           linear(name + "attn.c_proj", mixed, width, width, residual_std, Activation::kNone));
    const TensorId up =
        linear(name + "mlp.c_fc", norm(name + "ln_2"), width, 4 * width, kStd, config_.activation);
    branch(name + "mlp.",
           linear(name + "mlp.c_proj", up, 4 * width, width, residual_std, Activation::kNone));
  }

  void branch(const std::string& name, TensorId delta) {
    stream_.add(ops::dropout(builder_, name + "dropout", delta, config_.dropout));
  }

  TensorId norm(const std::string& name) {
    const TensorId gamma = builder_.parameter(
        name + ".weight", {config_.width}, {Initializer::Kind::kConstant, 1}, false);
    const TensorId beta = bias_of(name, config_.width);
    return stream_.norm([&](TensorId x, TensorId delta) {
      return ops::layer_norm(builder_, name, x, delta, gamma, beta);
    });
  }

  TensorId linear(const std::string& name,
                  TensorId x,
                  int64_t inputs,
                  int64_t outputs,
                  float std,
                  Activation activation) {
    const TensorId weight = matrix(name + ".weight", outputs, inputs, std);
    return ops::linear(builder_, name, x, weight, bias_of(name, outputs), activation);
  }

  TensorId matrix(const std::string& name, int64_t rows, int64_t columns, float std) {
    return builder_.parameter(name, {rows, columns}, {Initializer::Kind::kNormal, std}, true);
  }

  TensorId bias_of(const std::string& name, int64_t width) {
    if (!config_.bias) return kNoTensor;
    return builder_.parameter(name + ".bias", {width}, {Initializer::Kind::kConstant, 0}, false);
  }

  const GptConfig& config_;
  int64_t lane_batch_;
  int64_t tokens_;
  GraphBuilder builder_;
  TokenInputs inputs_;
  ResidualStream stream_;  // (B, T, C)
};

class Gpt final : public Model {
 public:
  explicit Gpt(const GptConfig& config) : config_(config) {}

  void check() const override {
    if (config_.width % config_.heads != 0) {
      refuse_value("model.gpt.heads",
                   config_.heads,
                   fmt::format("a divisor of model.gpt.width, which is {}", config_.width));
    }
  }

  ModelTraits traits() const override {
    return {.input = ModelInput::kTokens,
            .context = config_.context,
            .outputs = config_.vocabulary,
            .outputs_field = "vocabulary",
            .vocabulary_tensor = kEmbedding,
            .has_blocks = true};
  }

  ModelConfig resolve(const ModelIo& io) const override {
    GptConfig gpt = config_;
    if (gpt.vocabulary == 0) gpt.vocabulary = io.classes;
    if (gpt.vocabulary < io.classes)
      throw ConfigError("model.gpt.vocabulary: value is {}; the data has token ids up to {}",
                        gpt.vocabulary,
                        io.classes - 1);
    return gpt;
  }

  ModelIo io_of_weights(const ExtentsOf& extents_of) const override {
    ModelIo io;
    io.classes = extent(extents_of, kEmbedding, 0, 1);
    return io;
  }

  Graph build(const ModelIo& /*io*/,
              int64_t lane_batch,
              int64_t tokens,
              const GraphOptions& options) const override {
    return GptBuilder(config_, lane_batch, tokens > 0 ? tokens : config_.context, options).build();
  }

  // 6 per parameter that multiplies a token, and causal attention's half of all pairs of tokens.
  double flops_per_sample(const ModelIo& /*io*/) const override {
    const auto width = static_cast<double>(config_.width),
               layers = static_cast<double>(config_.layers),
               context = static_cast<double>(config_.context),
               vocabulary = static_cast<double>(config_.vocabulary);
    // Blocks, norms, head or shared embedding; positions and a separate input embedding multiply
    // nothing.
    const double parameters =
        layers * (12 * width * width + 13 * width) + 2 * width + vocabulary * width;
    return context * (6 * parameters + 6 * layers * width * context);
  }

 private:
  GptConfig config_;
};

}  // namespace

template <>
std::unique_ptr<const Model> make_model(const GptConfig& config) {
  return std::make_unique<Gpt>(config);
}

}  // namespace lockstep
