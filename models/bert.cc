// BERT (Devlin et al. 2018) and RoBERTa (Liu et al. 2019): token, position and segment embeddings,
// blocks of attention and an MLP with a norm after each residual sum (post-norm), and a head for
// the task.
//
// Tensors are named as in Hugging Face's files, except that query, key and value are one matrix,
// attention.self.qkv, with their rows one after the other.
//
// Samples are padded texts. Padding has no influence, because attention and losses skip it.
// RoBERTa's positions begin at padding_token + 1, so the first rows of its table are not used.
//
// Initialisation: N(0, 0.02) for matrices and embeddings, biases 0, gammas 1.
#include <string>
#include <utility>

#include "models/language_model.h"
#include "models/model.h"
#include "models/transformer.h"
#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/add.h"
#include "runtime/graph/ops/attention.h"
#include "runtime/graph/ops/contrastive.h"
#include "runtime/graph/ops/dropout.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/softmax_cross_entropy.h"
#include "runtime/graph/ops/token_pooling.h"

namespace lockstep::models {
namespace {

using Task = BertConfig::Task;

bool is_roberta(const BertConfig& config) { return config.layout == BertConfig::Layout::kRoberta; }

std::string body_of(const BertConfig& config) { return is_roberta(config) ? "roberta." : "bert."; }

std::string embedding_of(const BertConfig& config) {
  return body_of(config) + "embeddings.word_embeddings.weight";
}

// Whether the classifier reads a dense layer of the first token (BERT's "pooler").
bool has_pooler(const BertConfig& config) {
  const bool of_sequences =
      config.task == Task::kSequenceClasses || config.task == Task::kSequenceValues;
  return of_sequences && config.pooling == BertConfig::Pooling::kFirstToken;
}

// Name of the last layer, for the tasks that predict classes or values.
std::string classifier_of(const BertConfig& config) {
  return is_roberta(config) && has_pooler(config) ? "classifier.out_proj" : "classifier";
}

bool has_classes(const BertConfig& config) {
  return config.task == Task::kSequenceClasses || config.task == Task::kTokenClasses;
}

// Whether the network ends in a layer of classes or values.
bool has_outputs(const BertConfig& config) {
  return has_classes(config) || config.task == Task::kSequenceValues;
}

class BertLayers : private TransformerLayers {
 public:
  // texts: of a sample, each a row of the batch.
  BertLayers(const BertConfig& config,
             int64_t lane_batch,
             int64_t texts,
             int64_t tokens,
             graph::GraphBuilder& builder)
      : TransformerLayers(builder),
        config_(config),
        lane_batch_(lane_batch),
        texts_(texts),
        tokens_(tokens),
        body_(body_of(config)) {}

  void add() {
    const int64_t first_position = is_roberta(config_) ? config_.padding_token + 1 : 0;
    inputs_ =
        text_inputs(builder_, lane_batch_ * texts_, tokens_, static_cast<int32_t>(first_position));
    const TensorId word = matrix(embedding_of(config_), config_.vocabulary, config_.width);
    TensorId x = embed(word, first_position + config_.context);
    for (int64_t i = 0; i < config_.layers; ++i) {
      builder_.begin_block();
      x = block(body_ + "encoder.layer." + std::to_string(i) + ".", x);
      builder_.end_block();
    }
    add_head(x, word);
  }

 private:
  TensorId embed(TensorId word, int64_t positions) {
    const std::string name = body_ + "embeddings.";
    const auto rows_of = [&](const char* table, TensorId ids, TensorId weight) {
      return ops::embedding(builder_, name + table, ids, weight, kNoTensor);
    };
    const TensorId position = matrix(name + "position_embeddings.weight", positions, config_.width);
    const TensorId segment =
        matrix(name + "token_type_embeddings.weight", config_.segments, config_.width);
    const TensorId sum = ops::add(builder_,
                                  name + "sum",
                                  rows_of("word_embeddings", inputs_.tokens, word),
                                  rows_of("token_type_embeddings", inputs_.segments, segment));
    const TensorId normed =
        norm(name + "LayerNorm", sum, rows_of("position_embeddings", inputs_.positions, position));
    return dropout(name + "dropout", normed);
  }

  // x (B, T, C)
  TensorId block(const std::string& name, TensorId x) {
    const int64_t width = config_.width;
    const TensorId qkv = linear(
        name + "attention.self.qkv", x, {.outputs = 3 * width, .row_parts = {width, width, width}});
    const TensorId mixed = ops::attention(
        builder_,
        name + "attention.self",
        qkv,
        {.heads = config_.heads, .causal = false, .dropout = config_.attention_dropout},
        inputs_.documents);
    x = after_branch(name + "attention.output.", x, mixed);
    const TensorId up = linear(name + "intermediate.dense",
                               x,
                               {.outputs = config_.mlp_width, .activation = config_.activation});
    return after_branch(name + "output.", x, up);
  }

  // norm(x + dense(branch))
  TensorId after_branch(const std::string& name, TensorId x, TensorId branch) {
    const TensorId out = linear(name + "dense", branch, {.outputs = config_.width});
    return norm(name + "LayerNorm", x, dropout(name + "dropout", out));
  }

  void add_head(TensorId x, TensorId word) {
    switch (config_.task) {
      case Task::kMaskedTokens: return predict_tokens(x, word);
      case Task::kTokenClasses: return classify(dropout("dropout", x));
      case Task::kHiddenStates: return keep_states(x);
      case Task::kEmbeddings: return compare_texts(x);
      case Task::kSequenceClasses:
      case Task::kSequenceValues: break;
    }
    if (!has_pooler(config_)) return classify(dropout("classifier.dropout", pooled(x)));
    const TensorId first = pooled(x);
    const Linear tanh = {.outputs = config_.width, .activation = Activation::kTanh};
    const TensorId pooled =
        is_roberta(config_)
            ? linear("classifier.dense", dropout("classifier.dropout.input", first), tanh)
            : linear("bert.pooler.dense", first, tanh);
    classify(dropout("classifier.dropout", pooled));
  }

  // A vector (B, C) for each text.
  TensorId pooled(TensorId x) {
    if (config_.pooling == BertConfig::Pooling::kMean)
      return ops::token_pooling(builder_, "pooled", x, inputs_.documents);
    return ops::select(builder_, "pooled", x, 1, 0);
  }

  void compare_texts(TensorId x) {
    const TensorId vectors = pooled(x);
    const TensorId similarities = builder_.options().purpose == graph::Purpose::kInference
                                      ? kNoTensor
                                      : builder_.input("targets", {lane_batch_}, DType::kF32);
    ops::contrastive(builder_, vectors, texts_, similarities, builder_.options().contrastive);
  }

  void predict_tokens(TensorId x, TensorId word) {
    const bool roberta = is_roberta(config_);
    const std::string name = roberta ? "lm_head." : "cls.predictions.";
    const TensorId dense =
        linear(name + (roberta ? "dense" : "transform.dense"),
               x,
               {.outputs = config_.width,
                .activation = roberta ? Activation::kGeluErf : config_.activation});
    const TensorId normed =
        norm(name + (roberta ? "layer_norm" : "transform.LayerNorm"), dense, kNoTensor);
    const TensorId bias = constant(name + "bias", config_.vocabulary, 0);
    const TensorId targets = builder_.options().purpose == graph::Purpose::kInference
                                 ? kNoTensor
                                 : target_tokens(builder_, lane_batch_, tokens_);
    end_language_model(builder_, normed, word, targets, config_.label_smoothing, bias);
  }

  // x (B, T, C) or (B, C), with a target for each row.
  void classify(TensorId x) {
    const TensorId outputs = linear(classifier_of(config_), x, {.outputs = config_.classes});
    const bool values = config_.task == Task::kSequenceValues;
    end_text_classifier(builder_,
                        outputs,
                        values ? Loss::kMeanSquaredError : Loss::kSoftmaxCrossEntropy,
                        config_.label_smoothing);
  }

  // Parameters are ordered as a backward pass finishes them, so a training graph needs a loss. This
  // one, of the first token, is never run.
  void keep_states(TensorId x) {
    if (builder_.options().purpose == graph::Purpose::kInference) return builder_.keep(x);
    ops::softmax_cross_entropy(builder_,
                               ops::select(builder_, "pooled", x, 1, 0),
                               builder_.input("targets", {lane_batch_}, DType::kI32),
                               0);
  }

  TensorId norm(const std::string& name, TensorId x, TensorId delta) {
    return layer_norm(name, x, delta, config_.norm_epsilon).second;
  }

  TensorId dropout(const std::string& name, TensorId x) {
    return ops::dropout(builder_, name, x, config_.dropout);
  }

  const BertConfig& config_;
  int64_t lane_batch_, texts_;
  int64_t tokens_;
  std::string body_;  // prefix of the names of the body's tensors
  TokenInputs inputs_;
};

class Bert final : public Model {
 public:
  explicit Bert(const BertConfig& config) : config_(config) {}

  void check() const override {
    check_heads(BertConfig::kName, config_.heads, config_.width);
    if (config_.label_smoothing > 0 && !has_classes(config_) && config_.task != Task::kMaskedTokens)
      config::refuse_value(
          "model.bert.label_smoothing",
          config_.label_smoothing,
          "0; above 0 only with model.bert.task MASKED_TOKENS, SEQUENCE_CLASSES or "
          "TOKEN_CLASSES");
    if (is_roberta(config_) && config_.vocabulary > 0 &&
        config_.padding_token >= config_.vocabulary)
      config::refuse_value("model.bert.padding_token",
                           config_.padding_token,
                           "a token below model.bert.vocabulary, which is {}",
                           config_.vocabulary);
  }

  config::ModelTraits traits() const override {
    config::ModelTraits traits;
    traits.input = config::ModelInput::kTokens;
    traits.context = config_.context;
    traits.segments = config_.segments;
    traits.vocabulary = config_.vocabulary;
    traits.outputs = config_.classes;
    traits.outputs_field = "classes";
    traits.has_blocks = true;
    switch (config_.task) {
      case Task::kMaskedTokens:
        traits.text_task = config::TextTask::kMaskedTokens;
        traits.outputs = config_.vocabulary;
        traits.outputs_field = "vocabulary";
        break;
      case Task::kSequenceClasses: traits.text_task = config::TextTask::kSequenceClass; break;
      case Task::kSequenceValues:
        traits.text_task = config::TextTask::kSequenceValues;
        traits.loss = Loss::kMeanSquaredError;
        break;
      case Task::kTokenClasses: traits.text_task = config::TextTask::kTokenClasses; break;
      case Task::kHiddenStates: traits.text_task = config::TextTask::kHiddenStates; break;
      case Task::kEmbeddings:
        traits.text_task = config::TextTask::kEmbeddings;
        traits.loss = Loss::kContrastive;
        traits.outputs = config_.width;
        traits.outputs_field = "width";
        break;
    }
    return traits;
  }

  ModelConfig resolve(const ModelIo& io) const override {
    BertConfig bert = config_;
    const bool of_tokens = bert.task == Task::kMaskedTokens;
    const int64_t vocabulary = of_tokens ? io.classes : io.vocabulary;
    bert.vocabulary = resolve_vocabulary(bert.vocabulary, vocabulary, BertConfig::kName);
    if (of_tokens || !has_outputs(bert)) return bert;
    const int64_t outputs = has_classes(bert) ? io.classes : io.target_columns;
    if (bert.classes == 0) bert.classes = outputs;
    if (has_classes(bert) ? bert.classes < outputs : bert.classes != outputs)
      throw ConfigError("model.bert.classes: value is {}; the data has {} {}",
                        bert.classes,
                        outputs,
                        has_classes(bert) ? "classes" : "target columns");
    return bert;
  }

  ModelIo io_of_weights(const ExtentsOf& extents_of) const override {
    ModelIo io;
    io.vocabulary = extent(extents_of, embedding_of(config_), 0, 1);
    const int64_t outputs = extent(extents_of, classifier_of(config_) + ".weight", 0, 1);
    if (config_.task == Task::kMaskedTokens) io.classes = io.vocabulary;
    if (has_classes(config_)) io.classes = outputs;
    if (config_.task == Task::kSequenceValues) io.target_columns = outputs;
    return io;
  }

  graph::Graph build(const ModelIo& io,
                     int64_t lane_batch,
                     int64_t tokens,
                     const graph::GraphOptions& options) const override {
    graph::GraphBuilder builder(options);
    BertLayers(config_, lane_batch, io.texts, tokens > 0 ? tokens : config_.context, builder).add();
    return std::move(builder).finish();
  }

  double flops_per_sample(const ModelIo& io) const override {
    return Model::flops_per_sample(io) +
           static_cast<double>(io.texts) *
               attention_flops(config_.context, config_.width, config_.layers);
  }

 private:
  BertConfig config_;
};

}  // namespace

template <>
std::unique_ptr<const Model> make_model(const BertConfig& config) {
  return std::make_unique<Bert>(config);
}

}  // namespace lockstep::models
