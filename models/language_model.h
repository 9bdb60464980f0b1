#pragma once
// The base class of the families that predict the next token; the inputs of a language model, and
// its output matrix with the loss.

#include <functional>
#include <string>

#include "models/model.h"
#include "runtime/config/run_config.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/attention.h"

namespace lockstep::models {

// (B, T) i32 each, or kNoTensor.
struct TokenInputs {
  TensorId tokens = kNoTensor;
  TensorId targets = kNoTensor;    // the next token, or -1: not counted; kNoTensor in inference
  TensorId documents = kNoTensor;  // only for packed samples: see packed_tokens.h
  TensorId positions = kNoTensor;
  TensorId segments = kNoTensor;  // only for samples of four rows
};

// The loader fills inputs and targets with GraphOptions::sample_tokens tokens of each sample. A
// graph for fewer tokens reads the first ones.

// Adds the targets of a graph for `tokens` tokens, one for each token: (B, T) i32.
TensorId target_tokens(graph::GraphBuilder& builder, int64_t lane_batch, int64_t tokens);

// Adds the inputs of a graph for samples of `tokens` tokens, packed if GraphOptions::packed is set.
// If GraphOptions::preference is set, a sample is two texts of four rows, each a row of the batch.
TokenInputs token_inputs(graph::GraphBuilder& builder, int64_t lane_batch, int64_t tokens);

// The same without targets, for samples of four rows (tokens, documents, positions, segments).
// Positions count from `first_position`.
TokenInputs text_inputs(graph::GraphBuilder& builder,
                        int64_t lane_batch,
                        int64_t tokens,
                        int32_t first_position);

// Attention of one block over qkv (B, T, P). If GraphOptions::cached_tokens is set, it keeps keys
// and values in a cache named after the block.
TensorId text_attention(graph::GraphBuilder& builder,
                        const std::string& name,
                        TensorId qkv,
                        const graph::AttentionAttributes& attributes,
                        const TokenInputs& inputs);

// Ends the graph. x (B, T, C); head (V, C), the output matrix; bias (V) or kNoTensor. In inference
// the graph's output are the logits, or x if GraphOptions::head is false. Otherwise it is the loss,
// computed GraphOptions::loss_rows rows at a time, or all at once if the head has a LoRA.
void end_language_model(graph::GraphBuilder& builder,
                        TensorId x,
                        TensorId head,
                        TensorId targets,
                        float label_smoothing,
                        TensorId bias = kNoTensor);

// A network's last hidden states x (B, T, C), the output matrix (V, C), and its bias or kNoTensor.
struct DecoderOutput {
  TensorId x, head, bias = kNoTensor;
};

// Ends the graph of a decoder, whose layers `network` adds: with end_language_model() or, for pairs
// of answers, with the loss of DPO (preference_loss.h). The reference is the same network without
// its LoRA, for which `network` is called again. Throws ConfigError if the head has a LoRA.
void end_decoder(graph::GraphBuilder& builder,
                 const TokenInputs& inputs,
                 float label_smoothing,
                 const std::function<DecoderOutput()>& network);

// Adds the inputs of a reward model: like text_inputs(), but the segments are 0 for the last token
// of a text and -1 for all others.
TokenInputs reward_inputs(graph::GraphBuilder& builder, int64_t lane_batch, int64_t tokens);

// Ends the graph of a reward model: the reward is a linear layer, score.weight, of the last token's
// x. The output is (B, 1), or (B, 2) for pairs of answers, whose loss is Bradley and Terry's.
void end_reward_model(graph::GraphBuilder& builder, TensorId x, TensorId segments);

// Ends the graph of a network that predicts classes or values for texts, outputs (B, O), or classes
// for each token, outputs (B, T, O). In inference the outputs are the graph's output. Otherwise
// this adds the targets and the loss: softmax cross-entropy for classes, mean squared error for
// values.
void end_text_classifier(graph::GraphBuilder& builder,
                         TensorId outputs,
                         Loss loss,
                         float label_smoothing);

// The config's vocabulary or, if that is 0, the data's. Throws ConfigError if the data has more.
// `section` is the name of the model's config section.
int64_t resolve_vocabulary(int64_t configured, int64_t needed, const std::string& section);

// Config has the fields `context`, `vocabulary` and `head`.
template <typename Config>
class LanguageModelFamily : public Model {
 public:
  // `embedding`: the name of the tensor with a row for each token.
  LanguageModelFamily(const Config& config, const char* embedding)
      : config_(config), embedding_(embedding) {}

  config::ModelTraits traits() const final {
    config::ModelTraits traits = {.input = config::ModelInput::kTokens,
                                  .context = config_.context,
                                  .outputs = config_.vocabulary,
                                  .outputs_field = "vocabulary",
                                  .vocabulary_tensor = embedding_,
                                  .has_blocks = true};
    if (!is_reward_model()) return traits;
    traits.text_task = config::TextTask::kRewards;
    traits.vocabulary = config_.vocabulary;
    traits.outputs = 1;
    traits.outputs_field = "head";
    traits.vocabulary_tensor = nullptr;
    return traits;
  }

  ModelConfig resolve(const ModelIo& io) const final {
    Config config = config_;
    config.vocabulary = resolve_vocabulary(
        config.vocabulary, is_reward_model() ? io.vocabulary : io.classes, Config::kName);
    return config;
  }

  ModelIo io_of_weights(const ExtentsOf& extents_of) const final {
    ModelIo io;
    (is_reward_model() ? io.vocabulary : io.classes) = extent(extents_of, embedding_, 0, 1);
    return io;
  }

  graph::Graph build(const ModelIo& /*io*/,
                     int64_t lane_batch,
                     int64_t tokens,
                     const graph::GraphOptions& options) const final {
    graph::GraphBuilder builder(options);
    const int64_t length = tokens > 0 ? tokens : config_.context;
    add_layers(builder,
               is_reward_model() ? reward_inputs(builder, lane_batch, length)
                                 : token_inputs(builder, lane_batch, length));
    return std::move(builder).finish();
  }

 protected:
  // Adds all layers, and ends the graph with end_decoder() or end_reward_model().
  virtual void add_layers(graph::GraphBuilder& builder, const TokenInputs& inputs) const = 0;

  // Rows of the matrix that multiplies every token's last hidden states. A reward model multiplies
  // those of one token of a text, which do not count.
  double outputs_of_head() const {
    return is_reward_model() ? 0 : static_cast<double>(config_.vocabulary);
  }

  const Config config_;

 private:
  bool is_reward_model() const { return config_.head == DecoderHead::kReward; }

  const char* embedding_;
};

}  // namespace lockstep::models
