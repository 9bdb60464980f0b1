#include "models/onnx/bind/objective.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "models/language_model.h"
#include "models/onnx/bind/opened_file.h"
#include "models/onnx/nodes/lowering/fusion_plan.h"
#include "models/onnx/nodes/lowering/storage.h"
#include "models/onnx/read/constants.h"
#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/config/run_config.h"
#include "runtime/graph/ops/pointwise_losses.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/softmax_cross_entropy.h"
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
    if (loss != Loss::kSoftmaxCrossEntropy ||
        (!is_op(last, "Softmax") && !is_op(last, "LogSoftmax")))
      return output;
    const int64_t axis = last->integer("axis", last->opset < 13 ? 1 : -1);
    if (axis != -1 && axis != rank - 1) return output;
  }
  const int logits = last->input(0);
  if (readers.readers_of(number).empty()) plan.mark_fused(*last);
  return logits;
}

using Task = OnnxConfig::Task;

float smoothing_of(const OnnxConfig& config, const graph::GraphBuilder& builder) {
  return builder.training() ? config.label_smoothing : 0;
}

// An output in the form that the losses take: (N, T, O) for classes of tokens, else (N, O).
TensorId rows_of(Lowering& lowering, const OnnxConfig& config, int output) {
  const TensorId plain = lowering.layouts().plain(output);
  const Shape shape = lowering.builder().shape(plain);
  if (has_labels(config) || shape.rank() == 2) return plain;
  return ops::reshape(lowering.builder(),
                      lowering.value(output).name + ".values",
                      plain,
                      {shape[0], shape.elements() / shape[0]});
}

// The targets of an output, one for each row.
TensorId targets_of(graph::GraphBuilder& builder, const OnnxConfig& config, const Shape& output) {
  if (!has_labels(config)) return builder.input("targets", output, DType::kF32);
  if (output.rank() == 3) return models::target_tokens(builder, output[0], output[1]);
  return builder.input("labels", {output[0]}, DType::kI32);
}

void append_loss(graph::GraphBuilder& builder,
                 const OnnxConfig& config,
                 TensorId output,
                 TensorId targets) {
  if (has_labels(config))
    return ops::softmax_cross_entropy(builder, output, targets, smoothing_of(config, builder));
  const bool squared =
      config.loss == Loss::kMeanSquaredError || config.task == Task::kSequenceValues;
  if (squared) return ops::mean_squared_error(builder, output, targets);
  ops::binary_cross_entropy(builder, output, targets);
}

// The values for which losses are computed and that inference returns: the outputs before a final
// softmax or sigmoid.
std::vector<int> take_all_logits(Lowering& lowering,
                                 const OnnxConfig& config,
                                 const std::vector<int>& outputs) {
  const bool squared = config.diffusion || config.task == Task::kSequenceValues;
  std::vector<int> logits;
  for (const int output : outputs) {
    logits.push_back(
        lowering.readers().origin_of(take_logits(lowering.readers(),
                                                 lowering.fusion(),
                                                 output,
                                                 squared ? Loss::kMeanSquaredError : config.loss)));
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

bool has_labels(const OnnxConfig& config) {
  return config.loss == Loss::kSoftmaxCrossEntropy && config.task != Task::kSequenceValues &&
         !config.diffusion;
}

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

void check_objective(const OnnxConfig& config) {
  if (config.label_smoothing > 0 && !has_labels(config))
    config::refuse_value(
        "model.onnx.label_smoothing",
        config.label_smoothing,
        "0; above 0 only with model.onnx.loss SOFTMAX_CROSS_ENTROPY, without diffusion, and "
        "without model.onnx.task SEQUENCE_VALUES");
  if (!config.diffusion) return;
  models::check_diffusion(
      "model.onnx.diffusion", config.diffusion->schedule, config.diffusion->target);
  if (config.loss == Loss::kBinaryCrossEntropy)
    config::refuse_value("model.onnx.loss",
                         lockstep::name_of(config.loss),
                         "none with model.onnx.diffusion, whose loss is the squared error");
  if (!config.losses.empty())
    throw ConfigError("model.onnx.losses: not allowed with model.onnx.diffusion");
}

int64_t output_count(const OnnxConfig& config, const Value& output) {
  const Extents& extents = output.extents;
  if (extents.empty()) return 1;
  return has_labels(config) ? extents.back() : elements(extents) / std::max<int64_t>(1, extents[0]);
}

void check_outputs(const OnnxConfig& config,
                   const NetworkInputs& inputs,
                   const Network& network,
                   int64_t samples) {
  const bool of_texts =
      config.task == Task::kSequenceClasses || config.task == Task::kSequenceValues;
  const bool of_tokens = inputs.kind() == config::ModelInput::kTokens && !of_texts;
  Extents first = {samples};  // the leading extents, before the classes or values
  if (of_tokens) first.push_back(inputs.context());
  std::string form = of_tokens ? "(N, T, O)" : has_labels(config) ? "(N, O)" : "(N, ...)";
  if (inputs.kind() == config::ModelInput::kTokens)
    form += fmt::format(" for model.onnx.task {}", lockstep::name_of(config.task));
  if (config.diffusion) {
    first = network.values[static_cast<size_t>(network.inputs[inputs.images_place()])].extents;
    form = to_string(first) + ", the extents of the images";
  }
  const std::vector<size_t> indices = outputs_of(*open_file(config), config);
  const auto output_at = [&](size_t index) -> const Value& {
    return network.values[static_cast<size_t>(network.outputs[index])];
  };
  for (const size_t index : indices) {
    const Value& output = output_at(index);
    const Extents& extents = output.extents;
    const size_t rank = extents.size(), others = first.size();
    const bool main = index == indices.front();
    const bool good = is_floating(output.type) && rank >= others &&
                      std::equal(first.begin(), first.end(), extents.begin()) &&
                      (config.diffusion     ? rank == others
                       : has_labels(config) ? rank == others + 1
                                            : rank > others);
    if (good &&
        (main || output_count(config, output) == output_count(config, output_at(indices[0]))))
      continue;
    throw ConfigError("{}: \"{}\" of {} is {} with extents {} for {}; allowed: float {}{}{}",
                      main ? "model.onnx.output" : "model.onnx.losses.output",
                      output.name,
                      config.file,
                      name_of(output.type),
                      to_string(extents),
                      samples == 1 ? "one sample" : fmt::format("{} samples", samples),
                      form,
                      main ? "" : ", with as many outputs as model.onnx.output",
                      network.outputs.size() > 1 ? "; the file has other outputs" : "");
  }
}

void append_objective(Lowering& lowering,
                      const OnnxConfig& config,
                      const DataInputs& data,
                      const std::vector<int>& given) {
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
    rows.push_back(rows_of(lowering, config, outputs[i]));
  TensorId targets = data.targets;
  if (layer) {
    const Shape& x = builder.shape(lowering.layouts().plain(layer->x));
    if (targets == kNoTensor) targets = models::target_tokens(builder, x[0], x[1]);
    append_output_layer(lowering, config, *layer, targets);
  }
  if (targets == kNoTensor) targets = targets_of(builder, config, builder.shape(rows.front()));
  for (const TensorId output : rows) append_loss(builder, config, output, targets);
  std::vector<float> weights = {1};
  for (const OnnxLoss& loss : config.losses) weights.push_back(loss.weight);
  if (outputs.size() > 1) ops::total_loss(builder, weights);
}

}  // namespace lockstep::onnx
