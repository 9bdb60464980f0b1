#include "models/onnx/bind/objective.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "models/language_model.h"
#include "models/losses.h"
#include "models/onnx/bind/opened_file.h"
#include "models/onnx/bind/targets.h"
#include "models/onnx/bind/transcript_output.h"
#include "models/onnx/bind/vector_outputs.h"
#include "models/onnx/nodes/lowering/fusion_plan.h"
#include "models/onnx/nodes/lowering/storage.h"
#include "models/onnx/read/constants.h"
#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/config/run_config.h"
#include "runtime/graph/ops/ctc_loss.h"
#include "runtime/graph/ops/given_loss.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/total_loss.h"

namespace lockstep::onnx {
namespace {

// The linear layer at the end of a network that computes logits of tokens. It becomes part of the
// loss, because the loss may compute only a part of the logits at a time.
struct OutputLayer {
  int x = -1;                            // value (N, T, C)
  int weight = -1;                       // parameter
  Storage storage = Storage::kAsInFile;  // for the weight as (V, C)
  int bias = -1;                         // parameter (V); below 0: none
  std::vector<const Node*> nodes;        // that compute the layer
};

// If a linear layer computes the output and no node reads it, marks the layer's nodes as fused and
// returns the layer. Called before Lowering::run(). After that the weight may have another storage,
// because of another op.
std::optional<OutputLayer> take_output_layer(const Readers& readers, FusionPlan& plan, int output) {
  output = readers.origin_of(output);
  const Extents extents = readers.value(output).extents;
  if (!readers.readers_of(output).empty() || extents.size() != 3) return std::nullopt;
  const Node* product = readers.producer(output);
  const Node* sum = nullptr;
  OutputLayer layer;
  if (is_op(product, "Add")) {
    sum = product;
    for (const auto& [a, b] :
         {std::pair(sum->input(0), sum->input(1)), std::pair(sum->input(1), sum->input(0))}) {
      const int bias = readers.source_of(b).value;
      if (bias < 0 || readers.value(bias).extents != Extents{extents[2]} ||
          readers.only_reader(a) != sum)
        continue;
      layer.bias = bias;
      product = readers.producer(a);
    }
  }
  if (!is_op(product, "MatMul")) return std::nullopt;
  const ParameterSource weight = readers.source_of(product->input(1));
  layer.x = product->input(0);
  if (weight.value < 0 || readers.value(weight.value).extents.size() != 2 ||
      readers.value(layer.x).extents.size() != 3)
    return std::nullopt;
  layer.weight = weight.value;
  layer.storage = weight.transposed ? Storage::kAsInFile : Storage::kTransposed;
  layer.nodes.push_back(product);
  if (sum != nullptr) layer.nodes.push_back(sum);
  for (const Node* node : layer.nodes) plan.mark_fused(*node);
  return layer;
}

// Outputs are (N, O), (N, T, O) for tokens and frames, or (N, O, d1, ...) for positions.
int64_t axis_of_classes(const OnnxConfig& config, config::ModelInput input, const Extents& output) {
  return positions_of(config, input, output).empty() ? static_cast<int64_t>(output.size()) - 1 : 1;
}

// The loss includes a final softmax or sigmoid. If the output is a softmax or log-softmax (for
// BINARY_CROSS_ENTROPY: a sigmoid), returns its input, the logits, and marks the node as fused
// unless other nodes read the output. Otherwise returns the output. Called before Lowering::run().
int take_logits(Lowering& lowering, const OnnxConfig& config, const DataInputs& data, int output) {
  const Readers& readers = lowering.readers();
  const int number = readers.origin_of(output);
  const Node* last = readers.producer(number);
  const Extents& extents = readers.value(number).extents;
  const auto rank = static_cast<int64_t>(extents.size());
  const Loss loss = config.diffusion ? Loss::kMeanSquaredError : loss_of(config);
  if (loss == Loss::kBinaryCrossEntropy) {
    if (!is_op(last, "Sigmoid")) return output;
  } else {
    const bool softmax = models::smooths_labels(loss) || loss == Loss::kCtc;
    if (!softmax || (!is_op(last, "Softmax") && !is_op(last, "LogSoftmax"))) return output;
    const int64_t axis = last->integer("axis", last->opset < 13 ? 1 : -1);
    const int64_t classes = axis_of_classes(config, data.kind, extents);
    if ((axis < 0 ? axis + rank : axis) != classes) return output;
    // Before opset 13 a softmax covered all axes from this one on.
    if (last->opset < 13 && classes != rank - 1) return output;
  }
  const int logits = last->input(0);
  if (readers.readers_of(number).empty()) lowering.fusion().mark_fused(*last);
  return logits;
}

using Task = OnnxConfig::Task;

// An output in the form that the losses take: (N, T, O) for classes of tokens and frames, (N, d1,
// ..., O) for classes of positions, else (N, O).
TensorId rows_of(Lowering& lowering, const OnnxConfig& config, const DataInputs& data, int output) {
  if (!positions_of(config, data.kind, lowering.value(output).extents).empty())
    return lowering.layouts().channels_last(output);
  const TensorId plain = lowering.layouts().plain(output);
  const Shape shape = lowering.builder().shape(plain);
  if (has_labels(config) || is_transcript(config) || shape.rank() == 2) return plain;
  return ops::reshape(lowering.builder(),
                      lowering.value(output).name + ".values",
                      plain,
                      {shape[0], shape.elements() / shape[0]});
}

// The extents of labels for rows (..., O).
Shape labels_shape(const Shape& rows) {
  Shape shape;
  for (int axis = 0; axis + 1 < rows.rank(); ++axis) shape.append(rows[axis]);
  return shape;
}

// The targets of an output, one for each row.
TensorId targets_of(graph::GraphBuilder& builder,
                    const OnnxConfig& config,
                    const DataInputs& data,
                    const Shape& output) {
  if (!has_labels(config)) return builder.input("targets", output, DType::kF32);
  if (data.kind == config::ModelInput::kTokens && output.rank() == 3)
    return models::target_tokens(builder, output[0], output[1]);
  return builder.input("labels", labels_shape(output), DType::kI32);
}

void append_total(graph::GraphBuilder& builder, const OnnxConfig& config) {
  if (config.losses.empty()) return;
  std::vector<float> weights = {1};
  for (const OnnxLoss& loss : config.losses) weights.push_back(loss.weight);
  ops::total_loss(builder, weights);
}

// The targets of rows with the loss of `config`, out of a record.
TensorId part_for(const Lowering& lowering,
                  const OnnxConfig& config,
                  const DataInputs& data,
                  size_t part,
                  const std::string& name,
                  TensorId rows) {
  const Shape& shape = lowering.builder().shape(rows);
  if (has_labels(config)) return data.record->take_as(DType::kI32, part, name, labels_shape(shape));
  return data.record->take_as(DType::kF32, part, name, shape);
}

void append_loss(graph::GraphBuilder& builder,
                 const OnnxConfig& config,
                 TensorId output,
                 TensorId targets) {
  if (is_transcript(config))
    return ops::ctc_loss(builder, output, targets, static_cast<int32_t>(config.ctc_blank));
  models::append_loss(
      builder, {loss_of(config), config.label_smoothing, config.huber_delta}, output, targets);
}

// The values for which losses are computed and that inference returns: the outputs before a final
// softmax or sigmoid.
std::vector<int> take_all_logits(Lowering& lowering,
                                 const OnnxConfig& config,
                                 const DataInputs& data,
                                 const std::vector<int>& outputs) {
  std::vector<int> logits;
  for (const int output : outputs) {
    const OnnxConfig head = of_head(config, logits.size());
    logits.push_back(lowering.readers().origin_of(take_logits(lowering, head, data, output)));
    if (std::ranges::count(logits, logits.back()) > 1)
      throw ConfigError(
          "model.onnx.losses.output: \"{}\" has the same logits or values as another output; "
          "allowed: outputs with different ones",
          lowering.value(output).name);
  }
  return logits;
}

// Ends a network that predicts tokens with an output matrix: the logits, or their loss.
void append_output_layer(Lowering& lowering,
                         const OnnxConfig& config,
                         const OutputLayer& layer,
                         TensorId targets) {
  const TensorId x = lowering.layouts().plain(layer.x);
  const TensorId weight = lowering.parameters().get(layer.weight, layer.storage);
  const TensorId bias = layer.bias < 0 ? kNoTensor : lowering.parameters().get(layer.bias);
  models::end_language_model(lowering.builder(), x, weight, targets, config.label_smoothing, bias);
}

void append_denoiser(Lowering& lowering, const DataInputs& data, int output) {
  graph::GraphBuilder& builder = lowering.builder();
  const TensorId predicted = lowering.layouts().channels_last(output);
  const Shape shape = builder.shape(predicted);
  const TensorId flat =
      ops::reshape(builder, "predicted", predicted, {shape[0], shape.elements() / shape[0]});
  models::end_denoiser(builder, flat, data.noised);
}

}  // namespace

Loss loss_of(const OnnxConfig& config) {
  if (config.task != Task::kSequenceValues || config.loss != Loss::kSoftmaxCrossEntropy)
    return config.loss;
  return Loss::kMeanSquaredError;
}

bool has_labels(const OnnxConfig& config) {
  return loss_of(config) == Loss::kSoftmaxCrossEntropy && !config.diffusion;
}

Extents positions_of(const OnnxConfig& config, config::ModelInput input, const Extents& output) {
  if (!has_labels(config) || input == config::ModelInput::kTokens || output.size() < 3) return {};
  return {output.begin() + 2, output.end()};
}

bool is_transcript(const OnnxConfig& config) { return config.loss == Loss::kCtc; }

bool predicts_tokens(const OnnxConfig& config) {
  return config.task == Task::kNextToken || config.task == Task::kMaskedTokens;
}

bool is_stream(const OnnxConfig& config, const graph::GraphOptions& options) {
  return config.task == Task::kNextToken && !options.packed;
}

config::TextTask text_task_of(const OnnxConfig& config) {
  switch (config.task) {
    case Task::kNextToken: return config::TextTask::kNextToken;
    case Task::kMaskedTokens: return config::TextTask::kMaskedTokens;
    case Task::kSequenceClasses: return config::TextTask::kSequenceClass;
    case Task::kSequenceValues: return config::TextTask::kSequenceValues;
    case Task::kTokenClasses: break;
  }
  return config::TextTask::kTokenClasses;
}

namespace {

void check_own_loss(const OnnxConfig& config) {
  const bool own = computes_loss(config);
  if (config.predictions.size() > 1)
    throw ConfigError("model.onnx.predictions: {} are given; allowed: at most one",
                      config.predictions.size());
  if (own && !config.losses.empty())
    throw ConfigError(
        "model.onnx.losses: not allowed with model.onnx.loss OUTPUT; add the losses in the file");
  if (own && config.diffusion)
    throw ConfigError("model.onnx.loss: OUTPUT is not allowed with model.onnx.diffusion");
  constexpr Loss kBuiltIn[] = {
      Loss::kSoftmaxCrossEntropy, Loss::kBinaryCrossEntropy, Loss::kMeanSquaredError};
  constexpr const char* kAllowed =
      "SOFTMAX_CROSS_ENTROPY, BINARY_CROSS_ENTROPY, MEAN_SQUARED_ERROR";
  for (const OnnxPrediction& prediction : config.predictions)
    if (std::ranges::count(kBuiltIn, prediction.kind) == 0)
      config::refuse_value(
          "model.onnx.predictions.kind", lockstep::name_of(prediction.kind), kAllowed);
  for (const OnnxLoss& loss : config.losses) {
    if (!loss.target.empty() && std::ranges::count(kBuiltIn, loss.loss) == 0)
      config::refuse_value("model.onnx.losses.loss", lockstep::name_of(loss.loss), kAllowed);
    if (loss.target.empty() && loss.loss != Loss::kSoftmaxCrossEntropy && loss.loss != config.loss)
      config::refuse_value("model.onnx.losses.loss",
                           lockstep::name_of(loss.loss),
                           "none without a target: the loss is model.onnx.loss");
  }
}

}  // namespace

void check_objective(const OnnxConfig& config) {
  check_own_loss(config);
  if (compares_vectors(config)) check_vector_fields(config);
  if (config.label_smoothing > 0 && (config.diffusion || !models::smooths_labels(loss_of(config))))
    config::refuse_value(
        "model.onnx.label_smoothing",
        config.label_smoothing,
        "0; above 0 only with model.onnx.loss SOFTMAX_CROSS_ENTROPY or SOFT_CROSS_ENTROPY, without "
        "diffusion, and without model.onnx.task SEQUENCE_VALUES");
  if (!config.diffusion) return;
  models::check_diffusion(
      "model.onnx.diffusion", config.diffusion->schedule, config.diffusion->target);
  if (config.loss != Loss::kSoftmaxCrossEntropy && config.loss != Loss::kMeanSquaredError)
    config::refuse_value("model.onnx.loss",
                         lockstep::name_of(config.loss),
                         "none with model.onnx.diffusion, whose loss is the squared error");
  if (!config.losses.empty())
    throw ConfigError("model.onnx.losses: not allowed with model.onnx.diffusion");
}

int64_t output_count(const OnnxConfig& config, config::ModelInput input, const Value& output) {
  const Extents& extents = output.extents;
  if (extents.empty()) return 1;
  if (is_transcript(config)) return extents.back();
  if (has_labels(config))
    return extents[static_cast<size_t>(axis_of_classes(config, input, extents))];
  return elements(extents) / std::max<int64_t>(1, extents[0]);
}

namespace {

// Ends the graph of a network that computes its loss. Evaluation has the loss of the prediction
// too, with weight 0, for its metrics. Inference returns the prediction or, without one, the losses
// of the samples.
void append_own_loss(Lowering& lowering,
                     const OnnxConfig& config,
                     const DataInputs& data,
                     const std::vector<int>& outputs) {
  graph::GraphBuilder& builder = lowering.builder();
  const OnnxConfig prediction = scored(config);
  const bool scores = !builder.training() && !config.predictions.empty();
  std::vector<int> logits;
  if (scores) logits = take_all_logits(lowering, prediction, data, {outputs[1]});
  lowering.run();
  TensorId losses = kNoTensor;
  if (builder.options().purpose != graph::Purpose::kInference || !scores) {
    losses = lowering.layouts().plain(lowering.readers().origin_of(outputs[0]));
    const Shape shape = builder.shape(losses);
    if (shape.rank() == 1) losses = ops::reshape(builder, "losses", losses, {shape[0], 1});
  }
  const TensorId rows = scores ? rows_of(lowering, prediction, data, logits.front()) : kNoTensor;
  if (builder.options().purpose == graph::Purpose::kInference)
    return builder.keep(scores ? rows : losses);
  if (scores) {
    TensorId targets = data.targets;
    if (data.record) targets = part_for(lowering, prediction, data, 0, "scored_target", rows);
    if (targets == kNoTensor) targets = targets_of(builder, prediction, data, builder.shape(rows));
    append_loss(builder, prediction, rows, targets);
  }
  ops::given_loss(builder, losses);
  if (scores) ops::total_loss(builder, {0, 1});
}

}  // namespace

void append_objective(Lowering& lowering,
                      const OnnxConfig& config,
                      const DataInputs& data,
                      const std::vector<int>& given) {
  if (computes_loss(config)) return append_own_loss(lowering, config, data, given);
  graph::GraphBuilder& builder = lowering.builder();
  const std::vector<int> outputs = take_all_logits(lowering, config, data, given);
  std::optional<OutputLayer> layer;
  if (data.kind == config::ModelInput::kTokens && predicts_tokens(config))
    layer = take_output_layer(lowering.readers(), lowering.fusion(), outputs.front());
  lowering.run();
  if (layer && !lowering.parameters().can_have(layer->weight, layer->storage)) {
    for (const Node* node : layer->nodes) lowering.fusion().release(*node);
    lowering.run();
    layer.reset();
  }
  if (config.diffusion) return append_denoiser(lowering, data, outputs.front());
  if (compares_vectors(config)) return append_comparison(lowering, data, outputs);
  if (builder.options().purpose == graph::Purpose::kInference) {
    if (layer) return append_output_layer(lowering, config, *layer, kNoTensor);
    return builder.keep(rows_of(lowering, config, data, outputs.front()));
  }
  // All ops that read the first output must precede its loss, so rows of other outputs come first.
  std::vector<TensorId> rows;
  for (size_t i = layer ? 1 : 0; i < outputs.size(); ++i)
    rows.push_back(rows_of(lowering, of_head(config, i), data, outputs[i]));
  if (data.record) {
    for (size_t head = 0; head < rows.size(); ++head) {
      const size_t part = part_of_head(config, head);
      if (part > 0 && !builder.options().class_weights.empty())
        throw ConfigError(
            "train.class_weights: given; allowed: none with targets in model.onnx.losses");
      const OnnxConfig of = of_head(config, head);
      const std::string name = fmt::format("targets.{}", head);
      append_loss(builder, of, rows[head], part_for(lowering, of, data, part, name, rows[head]));
    }
    return append_total(builder, config);
  }
  TensorId targets = data.targets;
  if (layer) {
    const Shape& x = builder.shape(lowering.layouts().plain(layer->x));
    if (targets == kNoTensor) targets = models::target_tokens(builder, x[0], x[1]);
    append_output_layer(lowering, config, *layer, targets);
  }
  if (targets == kNoTensor)
    targets = targets_of(builder, config, data, builder.shape(rows.front()));
  for (const TensorId output : rows) append_loss(builder, config, output, targets);
  append_total(builder, config);
}

}  // namespace lockstep::onnx
