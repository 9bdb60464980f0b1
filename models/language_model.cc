#include "models/language_model.h"

#include <algorithm>
#include <string>

#include "runtime/base/error.h"
#include "runtime/graph/ops/cached_attention.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/linear_cross_entropy.h"
#include "runtime/graph/ops/lora.h"
#include "runtime/graph/ops/packed_tokens.h"
#include "runtime/graph/ops/pointwise_losses.h"
#include "runtime/graph/ops/preference_loss.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/softmax_cross_entropy.h"
#include "runtime/graph/ops/token_pooling.h"

namespace lockstep::models {

int64_t resolve_vocabulary(int64_t configured, int64_t needed, const std::string& section) {
  if (configured == 0) return needed;
  if (configured < needed)
    throw ConfigError("model.{}.vocabulary: value is {}; the data has token ids up to {}",
                      section,
                      configured,
                      needed - 1);
  return configured;
}

namespace {

constexpr int64_t kAnswers = 2;  // of a pair

// The number of tokens of a sample that the loader fills.
int64_t filled_tokens(const graph::GraphBuilder& builder, int64_t tokens) {
  return std::max(builder.options().sample_tokens, tokens);
}

// The first `tokens` tokens of each sample. If the run has graphs of several lengths, each graph
// has this op, also the longest.
TensorId leading_tokens(graph::GraphBuilder& builder,
                        const std::string& name,
                        TensorId filled,
                        int64_t tokens) {
  if (builder.options().sample_tokens == 0) return filled;
  std::vector<graph::ViewAxis> axes;
  for (int d = 0; d < builder.shape(filled).rank(); ++d)
    axes.push_back(graph::ViewAxis::first(d, builder.shape(filled)[d]));
  axes.back() = graph::ViewAxis::first(static_cast<int>(axes.size()) - 1, tokens);
  return ops::rearrange(builder, name, filled, axes);
}

}  // namespace

TensorId target_tokens(graph::GraphBuilder& builder, int64_t lane_batch, int64_t tokens) {
  const TensorId filled =
      builder.input("targets", {lane_batch, filled_tokens(builder, tokens)}, DType::kI32);
  return leading_tokens(builder, "leading_targets", filled, tokens);
}

TokenInputs token_inputs(graph::GraphBuilder& builder, int64_t lane_batch, int64_t tokens) {
  TokenInputs inputs;
  if (builder.options().preference) {
    const int64_t texts = kAnswers * lane_batch;
    inputs = text_inputs(builder, texts, tokens, 0);
    if (builder.options().purpose != graph::Purpose::kInference)
      inputs.targets = target_tokens(builder, texts, tokens);
    return inputs;
  }
  const bool packed = builder.options().packed;
  const int64_t filled = filled_tokens(builder, tokens);
  const TensorId samples = builder.input(
      "tokens", packed ? Shape({lane_batch, 3, filled}) : Shape({lane_batch, filled}), DType::kI32);
  if (builder.options().purpose != graph::Purpose::kInference)
    inputs.targets = target_tokens(builder, lane_batch, tokens);
  inputs.tokens = leading_tokens(builder, "leading_tokens", samples, tokens);
  if (packed) {
    const graph::PackedTokensIds parts = ops::packed_tokens(builder, inputs.tokens);
    inputs.tokens = parts.tokens;
    inputs.documents = parts.documents;
    inputs.positions = parts.positions;
  }
  return inputs;
}

TokenInputs text_inputs(graph::GraphBuilder& builder,
                        int64_t lane_batch,
                        int64_t tokens,
                        int32_t first_position) {
  const TensorId samples =
      builder.input("tokens", {lane_batch, 4, filled_tokens(builder, tokens)}, DType::kI32);
  const graph::PackedTokensIds parts = ops::packed_tokens(
      builder, leading_tokens(builder, "leading_tokens", samples, tokens), first_position);
  return {.tokens = parts.tokens,
          .documents = parts.documents,
          .positions = parts.positions,
          .segments = parts.segments};
}

TensorId text_attention(graph::GraphBuilder& builder,
                        const std::string& name,
                        TensorId qkv,
                        const graph::AttentionAttributes& attributes,
                        const TokenInputs& inputs) {
  const int64_t cached_tokens = builder.options().cached_tokens;
  if (cached_tokens == 0) return ops::attention(builder, name, qkv, attributes, inputs.documents);
  LOCKSTEP_CHECK(attributes.causal && inputs.positions != kNoTensor);
  const Shape packed = builder.shape(qkv);
  const int64_t head_size = packed[2] / (attributes.heads + 2 * attributes.kv_heads);
  const TensorId cache = builder.state(
      name + ".cache", {packed[0], 2 * attributes.kv_heads, cached_tokens * head_size});
  // A window as long as the cache leaves out nothing.
  const int64_t window = attributes.window < cached_tokens ? attributes.window : 0;
  return ops::cached_attention(builder,
                               name,
                               qkv,
                               inputs.documents,
                               inputs.positions,
                               cache,
                               {attributes.heads, attributes.kv_heads, window});
}

void end_language_model(graph::GraphBuilder& builder,
                        TensorId x,
                        TensorId head,
                        TensorId targets,
                        float label_smoothing,
                        TensorId bias) {
  const graph::GraphOptions& options = builder.options();
  const float smoothing = options.purpose == graph::Purpose::kTraining ? label_smoothing : 0;
  const int64_t rows = options.loss_rows;
  // A head with a LoRA needs all logits at once.
  const bool in_parts = rows > 0 && graph::lora_parts(builder, head).empty();
  if (options.purpose != graph::Purpose::kInference && in_parts)
    return ops::linear_cross_entropy(builder, x, head, bias, targets, smoothing, rows);
  if (options.purpose == graph::Purpose::kInference && !options.head) return builder.keep(x);
  const TensorId logits = ops::linear(builder, "lm_head", x, head, bias, Activation::kNone);
  if (options.purpose == graph::Purpose::kInference) return builder.keep(logits);
  ops::softmax_cross_entropy(builder, logits, targets, smoothing);
}

namespace {

// The log probabilities (pairs, 2) of answers.
TensorId answer_log_probs(graph::GraphBuilder& builder,
                          const std::string& name,
                          const DecoderOutput& output,
                          TensorId targets) {
  if (!graph::lora_parts(builder, output.head).empty())
    throw ConfigError(
        "adapter.lora.match: it matches the output matrix '{}'; allowed with data.preferences: a "
        "pattern that does not",
        builder.graph()[output.head].name);
  const int64_t rows = builder.options().loss_rows;
  return ops::sequence_log_prob(builder,
                                name,
                                output.x,
                                output.head,
                                output.bias,
                                targets,
                                {builder.shape(targets)[0] / kAnswers, kAnswers},
                                rows > 0 ? rows : builder.shape(targets).elements());
}

}  // namespace

void end_decoder(graph::GraphBuilder& builder,
                 const TokenInputs& inputs,
                 float label_smoothing,
                 const std::function<DecoderOutput()>& network) {
  const DecoderOutput output = network();
  const auto& preference = builder.options().preference;
  if (!preference || builder.options().purpose == graph::Purpose::kInference)
    return end_language_model(
        builder, output.x, output.head, inputs.targets, label_smoothing, output.bias);
  const TensorId policy = answer_log_probs(builder, "policy", output, inputs.targets);
  builder.begin_reference();
  const TensorId reference = answer_log_probs(builder, "reference", network(), inputs.targets);
  builder.end_reference();
  ops::preference_loss(builder,
                       policy,
                       reference,
                       {.beta = preference->beta, .label_smoothing = preference->label_smoothing});
}

namespace {

// Whether a reward model compares the rewards of pairs. Its loss always does.
bool rewards_of_pairs(const graph::GraphBuilder& builder) {
  return builder.options().preference.has_value() ||
         builder.options().purpose != graph::Purpose::kInference;
}

}  // namespace

TokenInputs reward_inputs(graph::GraphBuilder& builder, int64_t lane_batch, int64_t tokens) {
  const int64_t texts = rewards_of_pairs(builder) ? kAnswers * lane_batch : lane_batch;
  TokenInputs inputs = text_inputs(builder, texts, tokens, 0);
  // Pairs need no targets, but every sample has one.
  if (builder.options().purpose != graph::Purpose::kInference)
    builder.input("targets", {lane_batch}, DType::kI32);
  return inputs;
}

void end_reward_model(graph::GraphBuilder& builder, TensorId x, TensorId segments) {
  const TensorId last = ops::token_pooling(builder, "last", x, segments);
  const TensorId weight = builder.parameter("score.weight",
                                            {1, builder.shape(x).columns()},
                                            {graph::Initializer::Kind::kNormal, 0.02f},
                                            true);
  TensorId reward = ops::linear(builder, "score", last, weight, kNoTensor, Activation::kNone);
  if (rewards_of_pairs(builder))
    reward = ops::reshape(builder, "rewards", reward, {builder.shape(x)[0] / kAnswers, kAnswers});
  if (builder.options().purpose == graph::Purpose::kInference) return builder.keep(reward);
  const PreferenceConfig preference = builder.options().preference.value_or(PreferenceConfig{});
  ops::preference_loss(builder, reward, kNoTensor, {.label_smoothing = preference.label_smoothing});
}

void end_text_classifier(graph::GraphBuilder& builder,
                         TensorId outputs,
                         Loss loss,
                         float label_smoothing) {
  if (builder.options().purpose == graph::Purpose::kInference) return builder.keep(outputs);
  const Shape shape = builder.shape(outputs);
  if (loss == Loss::kMeanSquaredError)
    return ops::mean_squared_error(builder, outputs, builder.input("targets", shape, DType::kF32));
  const TensorId targets = shape.rank() == 3 ? target_tokens(builder, shape[0], shape[1])
                                             : builder.input("targets", {shape[0]}, DType::kI32);
  ops::softmax_cross_entropy(builder, outputs, targets, builder.training() ? label_smoothing : 0);
}

}  // namespace lockstep::models
