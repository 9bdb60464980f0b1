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

constexpr size_t kPixelRank = 4;  // of outputs with classes of pixels

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

// Outputs are (N, C), (N, T, C) or (N, C, H, W).
int64_t axis_of_classes(int64_t rank) { return rank == kPixelRank ? 1 : rank - 1; }

// The loss includes a final softmax or sigmoid. If the output is a softmax or log-softmax (for
// BINARY_CROSS_ENTROPY: a sigmoid), returns its input, the logits, and marks the node as fused
// unless other nodes read the output. Otherwise returns the output. Called before Lowering::run().
int take_logits(const Readers& readers, FusionPlan& plan, int output, Loss loss) {
  const int number = readers.origin_of(output);
  const Node* last = readers.producer(number);
  const auto rank = static_cast<int64_t>(readers.value(number).extents.size());
  if (loss == Loss::kBinaryCrossEntropy) {
    if (!is_op(last, "Sigmoid")) return output;
  } else {
    const bool softmax = models::smooths_labels(loss) || loss == Loss::kCtc;
    if (!softmax || (!is_op(last, "Softmax") && !is_op(last, "LogSoftmax"))) return output;
    const int64_t axis = last->integer("axis", last->opset < 13 ? 1 : -1);
    if ((axis < 0 ? axis + rank : axis) != axis_of_classes(rank)) return output;
    // Before opset 13 a softmax covered all axes from this one on.
    if (last->opset < 13 && axis_of_classes(rank) != rank - 1) return output;
  }
  const int logits = last->input(0);
  if (readers.readers_of(number).empty()) plan.mark_fused(*last);
  return logits;
}

using Task = OnnxConfig::Task;

// An output in the form that the losses take: (N, T, O) for classes of tokens and frames, (N, H, W,
// O) for classes of pixels, else (N, O).
TensorId rows_of(Lowering& lowering, const OnnxConfig& config, int output) {
  if (predicts_pixels(config, lowering.value(output).extents))
    return lowering.layouts().channels_last(output);
  const TensorId plain = lowering.layouts().plain(output);
  const Shape shape = lowering.builder().shape(plain);
  if (has_labels(config) || is_transcript(config) || shape.rank() == 2) return plain;
  return ops::reshape(lowering.builder(),
                      lowering.value(output).name + ".values",
                      plain,
                      {shape[0], shape.elements() / shape[0]});
}

// The targets of an output, one for each row.
TensorId targets_of(graph::GraphBuilder& builder, const OnnxConfig& config, const Shape& output) {
  if (!has_labels(config)) return builder.input("targets", output, DType::kF32);
  if (output.rank() == 3) return models::target_tokens(builder, output[0], output[1]);
  if (output.rank() == kPixelRank)
    return builder.input("labels", {output[0], output[1], output[2]}, DType::kI32);
  return builder.input("labels", {output[0]}, DType::kI32);
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
  if (has_labels(config)) return data.record->take_as(DType::kI32, part, name, {shape[0]});
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
                                 const std::vector<int>& outputs) {
  std::vector<int> logits;
  for (const int output : outputs) {
    const Loss loss =
        config.diffusion ? Loss::kMeanSquaredError : loss_of(of_head(config, logits.size()));
    logits.push_back(lowering.readers().origin_of(
        take_logits(lowering.readers(), lowering.fusion(), output, loss)));
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

bool predicts_pixels(const OnnxConfig& config, const Extents& output) {
  return has_labels(config) && output.size() == kPixelRank;
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

namespace {

// A loss is a number for each sample, or for each token or other part of a sample.
void check_loss(const OnnxConfig& config, const Value& loss, int64_t samples) {
  const Extents& extents = loss.extents;
  if (is_floating(loss.type) && (extents.size() == 1 || extents.size() == 2) &&
      extents[0] == samples)
    return;
  throw ConfigError(
      "model.onnx.output: \"{}\" of {} is {} with extents {} for {}; allowed with loss OUTPUT: "
      "float (N), (N, 1) or (N, T), a loss for each sample or token: export it with "
      "reduction='none', and its mean over all axes but the first",
      loss.name,
      config.file,
      name_of(loss.type),
      to_string(extents),
      samples == 1 ? "one sample" : fmt::format("{} samples", samples));
}

}  // namespace

int64_t output_count(const OnnxConfig& config, const Value& output) {
  const Extents& extents = output.extents;
  if (extents.empty()) return 1;
  if (is_transcript(config)) return extents.back();
  if (has_labels(config))
    return extents[static_cast<size_t>(axis_of_classes(static_cast<int64_t>(extents.size())))];
  return elements(extents) / std::max<int64_t>(1, extents[0]);
}

namespace {

// Throws ConfigError if an output does not have the form that its loss, of `config`, takes. `field`
// names the output; `wanted`: how many classes or values it must have, -1: any number.
void check_output(const OnnxConfig& config,
                  const NetworkInputs& inputs,
                  const Network& network,
                  int64_t samples,
                  const char* field,
                  const Value& output,
                  int64_t wanted) {
  const bool of_texts =
      config.task == Task::kSequenceClasses || config.task == Task::kSequenceValues;
  const bool of_tokens = inputs.kind() == config::ModelInput::kTokens && !of_texts;
  Extents first = {samples};  // the leading extents, before the classes or values
  if (of_tokens) first.push_back(inputs.context());
  const bool of_pixels = has_labels(config) && inputs.kind() == config::ModelInput::kImages;
  std::string form = of_tokens            ? "(N, T, O)"
                     : of_pixels          ? "(N, O), or (N, O, H, W) for classes of pixels"
                     : has_labels(config) ? "(N, O)"
                                          : "(N, ...)";
  if (inputs.kind() == config::ModelInput::kTokens)
    form += fmt::format(" for model.onnx.task {}", lockstep::name_of(config.task));
  if (config.diffusion) {
    first = network.values[static_cast<size_t>(network.inputs[inputs.images_place()])].extents;
    form = to_string(first) + ", the extents of the images";
  }
  const Extents& extents = output.extents;
  const size_t rank = extents.size(), others = first.size();
  const bool good = is_floating(output.type) && rank >= others &&
                    std::equal(first.begin(), first.end(), extents.begin()) &&
                    (config.diffusion     ? rank == others
                     : has_labels(config) ? rank == others + 1 || (of_pixels && rank == kPixelRank)
                                          : rank > others);
  if (good && (wanted < 0 || output_count(config, output) == wanted)) return;
  throw ConfigError("{}: \"{}\" of {} is {} with extents {} for {}; allowed: float {}{}{}",
                    field,
                    output.name,
                    config.file,
                    name_of(output.type),
                    to_string(extents),
                    samples == 1 ? "one sample" : fmt::format("{} samples", samples),
                    form,
                    wanted < 0 ? "" : ", with as many outputs as model.onnx.output",
                    network.outputs.size() > 1 ? "; the file has other outputs" : "");
}

}  // namespace

void check_outputs(const OnnxConfig& config,
                   const NetworkInputs& inputs,
                   const Network& network,
                   int64_t samples) {
  const std::vector<size_t> indices = outputs_of(*open_file(config), config);
  const auto output_at = [&](size_t place) -> const Value& {
    return network.values[static_cast<size_t>(network.outputs[indices[place]])];
  };
  const auto check = [&](const OnnxConfig& of, const char* field, size_t place, int64_t wanted) {
    check_output(of, inputs, network, samples, field, output_at(place), wanted);
  };
  if (is_transcript(config))
    return check_transcript_output(config, inputs, network, output_at(0), samples);
  if (computes_loss(config)) {
    check_loss(config, output_at(0), samples);
    const bool of_texts =
        config.task == Task::kSequenceClasses || config.task == Task::kSequenceValues;
    if (!config.predictions.empty() && inputs.kind() == config::ModelInput::kTokens && !of_texts)
      throw ConfigError(
          "model.onnx.predictions: allowed for a network that takes tokens: with model.onnx.task "
          "SEQUENCE_CLASSES or SEQUENCE_VALUES");
    if (!config.predictions.empty()) check(scored(config), "model.onnx.predictions.output", 1, -1);
    return;
  }
  check(config, "model.onnx.output", 0, -1);
  for (size_t head = 1; head < indices.size(); ++head) {
    const bool same_target = config.losses[head - 1].target.empty();
    if (!same_target && inputs.kind() == config::ModelInput::kTokens)
      throw ConfigError(
          "model.onnx.losses.target: allowed for networks of features or images only");
    check(of_head(config, head),
          "model.onnx.losses.output",
          head,
          same_target ? output_count(config, output_at(0)) : -1);
  }
}

void check_sizes_of_pixels(const OnnxConfig& config,
                           const NetworkInputs& inputs,
                           const Network& network,
                           const std::vector<int>& outputs) {
  for (const int number : outputs) {
    const Value& output = network.values[static_cast<size_t>(number)];
    if (!predicts_pixels(config, output.extents)) continue;
    const Extents& images =
        network.values[static_cast<size_t>(network.inputs[inputs.images_place()])].extents;
    if (std::equal(images.begin() + 2, images.end(), output.extents.begin() + 2)) continue;
    throw ConfigError(
        "model.onnx.output: \"{}\" of {} has {} x {} pixels for images of {} x {} (width x "
        "height); allowed: the images' size, which is that of the masks, as from a last Resize "
        "node; for a class of the image: (N, O)",
        output.name,
        config.file,
        output.extents[3],
        output.extents[2],
        images[3],
        images[2]);
  }
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
  if (scores) logits = take_all_logits(lowering, prediction, {outputs[1]});
  lowering.run();
  TensorId losses = kNoTensor;
  if (builder.options().purpose != graph::Purpose::kInference || !scores) {
    losses = lowering.layouts().plain(lowering.readers().origin_of(outputs[0]));
    const Shape shape = builder.shape(losses);
    if (shape.rank() == 1) losses = ops::reshape(builder, "losses", losses, {shape[0], 1});
  }
  const TensorId rows = scores ? rows_of(lowering, prediction, logits.front()) : kNoTensor;
  if (builder.options().purpose == graph::Purpose::kInference)
    return builder.keep(scores ? rows : losses);
  if (scores) {
    TensorId targets = data.targets;
    if (data.record) targets = part_for(lowering, prediction, data, 0, "scored_target", rows);
    if (targets == kNoTensor) targets = targets_of(builder, prediction, builder.shape(rows));
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
  const std::vector<int> outputs = take_all_logits(lowering, config, given);
  std::optional<OutputLayer> layer;
  if (data.takes_tokens && predicts_tokens(config))
    layer = take_output_layer(lowering.readers(), lowering.fusion(), outputs.front());
  lowering.run();
  if (layer && !lowering.parameters().can_have(layer->weight, layer->storage)) {
    for (const Node* node : layer->nodes) lowering.fusion().release(*node);
    lowering.run();
    layer.reset();
  }
  if (config.diffusion) return append_denoiser(lowering, data, outputs.front());
  if (builder.options().purpose == graph::Purpose::kInference) {
    if (layer) return append_output_layer(lowering, config, *layer, kNoTensor);
    return builder.keep(rows_of(lowering, config, outputs.front()));
  }
  // All ops that read the first output must precede its loss, so rows of other outputs come first.
  std::vector<TensorId> rows;
  for (size_t i = layer ? 1 : 0; i < outputs.size(); ++i)
    rows.push_back(rows_of(lowering, of_head(config, i), outputs[i]));
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
  if (targets == kNoTensor) targets = targets_of(builder, config, builder.shape(rows.front()));
  for (const TensorId output : rows) append_loss(builder, config, output, targets);
  append_total(builder, config);
}

}  // namespace lockstep::onnx
