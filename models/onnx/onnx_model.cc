// The family of networks that people bring: what the rest of the program wants to know of one, and its
// graph.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "models/language_model.h"
#include "models/model.h"
#include "models/onnx/data_inputs.h"
#include "models/onnx/ids.h"
#include "models/onnx/lowering/lowering.h"
#include "models/onnx/lowering/output_layer.h"
#include "models/onnx/network_inputs.h"
#include "models/onnx/opened_file.h"
#include "models/onnx/trained_file.h"
#include "models/onnx/write_file.h"
#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/pointwise_losses.h"
#include "runtime/graph/ops/softmax_cross_entropy.h"
#include "runtime/graph/schema.h"

namespace lockstep {
namespace onnx {
namespace {

// Of images whose size neither the file nor the data have said: the first that the network takes.
constexpr int64_t kUsualSides[] = {224, 32, 28, 64, 96};

class OnnxModel final : public Model {
 public:
  explicit OnnxModel(const OnnxConfig& config) : config_(config) {}

  void check() const override {
    const auto opened = open_file(config_);
    output_of(*opened, config_);
    if (config_.label_smoothing > 0 && !has_labels())
      refuse_value("model.onnx.label_smoothing",
                   config_.label_smoothing,
                   "0, or above it only with model.onnx.loss SOFTMAX_CROSS_ENTROPY and another "
                   "model.onnx.task than SEQUENCE_VALUES");
    const NetworkInputs inputs(*opened, config_);
    const Network network = usual_network(inputs, *opened);
    check_output(inputs, network);
    check_vocabulary(inputs, network);
    check_positions(inputs, network);
    check_shared(*opened, config_);
    // Whether there are ops for all of it.
    append(GraphOptions(Purpose::kInference), inputs, network, io_of(inputs, network));
  }

  ModelTraits traits() const override {
    if (config_.file.empty()) return {.loss = config_.loss};
    const auto opened = open_file(config_);
    const NetworkInputs inputs(*opened, config_);
    const Network network = usual_network(inputs, *opened);
    ModelTraits traits{.input = inputs.kind(),
                       .loss = config_.loss,
                       .outputs = outputs_of(network),
                       .outputs_field = "file"};
    if (inputs.kind() != ModelInput::kTokens) return traits;
    traits.context = inputs.context();
    traits.text_task = text_task();
    if (config_.task == Task::kSequenceValues) traits.loss = Loss::kMeanSquaredError;
    if (config_.task != Task::kNextToken) traits.segments = segments_of(inputs, network);
    traits.segments_field = traits.vocabulary_field = "file";
    traits.vocabulary = vocabulary_of(inputs, network);
    traits.tells_documents_apart = false;
    return traits;
  }

  ModelConfig resolve(const ModelIo& io) const override {
    const auto opened = open_file(config_);
    const NetworkInputs inputs(*opened, config_);
    const Network network = inputs.bind(
        1, inputs.context(), sample_of(inputs, *opened, io), is_stream(Purpose::kInference));
    const int64_t outputs = outputs_of(network),
                  wanted = has_labels() ? io.classes : io.target_columns;
    if (has_labels() ? outputs < wanted : wanted > 0 && outputs != wanted)
      throw ConfigError("model.onnx.file: {} has {} outputs; the data has {} {}",
                        config_.file,
                        outputs,
                        wanted,
                        has_labels() ? "classes" : "target columns");
    if (inputs.kind() == ModelInput::kFeatures && elements_of_input(network) != io.features)
      throw ConfigError("model.onnx.file: {} takes {} features; the data has {}",
                        config_.file,
                        elements_of_input(network),
                        io.features);
    return config_;
  }

  ModelIo io_of_weights(const ExtentsOf& /*extents_of*/) const override {
    const auto opened = open_file(config_);
    const NetworkInputs inputs(*opened, config_);
    return io_of(inputs, usual_network(inputs, *opened));
  }

  // The file's initializers with the elements of trained parameters.
  std::map<std::string, Array> trained(const TrainedElements& elements_of_parameter) const {
    const auto opened = open_file(config_);
    const NetworkInputs inputs(*opened, config_);
    const Network network = usual_network(inputs, *opened);
    std::map<std::string, Array> arrays;
    const Appended made =
        append(GraphOptions(Purpose::kInference), inputs, network, io_of(inputs, network));
    for (const LoweredParameter& parameter : made.parameters) {
      const Value& value = network.values[static_cast<size_t>(parameter.value)];
      arrays[value.name] =
          array_of(value.array.type,
                   value.extents,
                   elements_in_file(value, parameter.storage, elements_of_parameter(value.name)));
    }
    return arrays;
  }

  Graph build(const ModelIo& io,
              int64_t lane_batch,
              int64_t tokens,
              const GraphOptions& options) const override {
    const auto opened = open_file(config_);
    const NetworkInputs inputs(*opened, config_);
    const Network network = inputs.bind(lane_batch,
                                        tokens > 0 ? tokens : inputs.context(),
                                        sample_of(inputs, *opened, io),
                                        is_stream(options));
    return append(options, inputs, network, io).graph;
  }

  // Products that no layer of its own computes count, too.
  double flops_per_sample(const ModelIo& io) const override {
    const Graph graph = build(io, 1, 0, Purpose::kInference);
    int64_t flops = 0;
    for (const Op& op : graph.ops) {
      if (op.kind == OpKind::kBatchedMatmul || op.kind == OpKind::kAttention)
        flops += schema_of(op.kind).flops(graph, op);
    }
    return Model::flops_per_sample(io) + 3 * static_cast<double>(flops);
  }

 private:
  using Task = OnnxConfig::Task;

  struct Appended {
    Graph graph;
    std::vector<LoweredParameter> parameters;
  };

  bool has_labels() const {
    return config_.loss == Loss::kSoftmaxCrossEntropy && config_.task != Task::kSequenceValues;
  }
  bool predicts_tokens() const {
    return config_.task == Task::kNextToken || config_.task == Task::kMaskedTokens;
  }
  // Whether samples are tokens alone.
  bool is_stream(const GraphOptions& options) const {
    return config_.task == Task::kNextToken && !options.packed;
  }
  TextTask text_task() const {
    switch (config_.task) {
      case Task::kNextToken: return TextTask::kNextToken;
      case Task::kMaskedTokens: return TextTask::kMaskedTokens;
      case Task::kSequenceClasses: return TextTask::kSequenceClass;
      case Task::kSequenceValues: return TextTask::kSequenceValues;
      case Task::kTokenClasses: break;
    }
    return TextTask::kTokenClasses;
  }

  // Classes or values for each sample, or for each token of it.
  void check_output(const NetworkInputs& inputs, const Network& network) const {
    const Value& output = output_value(network);
    const bool of_texts =
        config_.task == Task::kSequenceClasses || config_.task == Task::kSequenceValues;
    const bool of_tokens = inputs.kind() == ModelInput::kTokens && !of_texts;
    Extents wanted = {1};
    if (of_tokens) wanted.push_back(inputs.context());
    const Extents& extents = output.extents;
    if (is_floating(output.type) && extents.size() == wanted.size() + 1 &&
        std::equal(wanted.begin(), wanted.end(), extents.begin()))
      return;
    throw ConfigError(
        "model.onnx.output: \"{}\" of {} is {} of extents {} for one sample; allowed: float {}{}",
        output.name,
        config_.file,
        name_of(output.type),
        to_string(extents),
        of_tokens ? "(N, T, O)" : "(N, O)",
        inputs.kind() == ModelInput::kTokens ? ", as model.onnx.task says" : "");
  }

  void check_vocabulary(const NetworkInputs& inputs, const Network& network) const {
    if (inputs.kind() != ModelInput::kTokens || !predicts_tokens()) return;
    const int64_t rows = fewest_rows_of(Meaning::kTokens, inputs, network);
    if (rows > 0 && rows < outputs_of(network))
      throw ConfigError("model.onnx.file: {} has {} outputs, but takes {} tokens alone",
                        config_.file,
                        outputs_of(network),
                        rows);
  }

  void check_positions(const NetworkInputs& inputs, const Network& network) const {
    if (inputs.kind() != ModelInput::kTokens) return;
    const int64_t rows = fewest_rows_of(Meaning::kPositions, inputs, network);
    if (rows > 0 && rows < inputs.context())
      refuse_value("model.onnx.context",
                   inputs.context(),
                   fmt::format("at most {}, the positions that {} knows", rows, config_.file));
  }

  int output_number(const Network& network) const {
    return network.outputs[output_of(*open_file(config_), config_)];
  }
  const Value& output_value(const Network& network) const {
    return network.values[static_cast<size_t>(output_number(network))];
  }
  int64_t outputs_of(const Network& network) const {
    const Extents& extents = output_value(network).extents;
    return extents.empty() ? 1 : extents.back();
  }
  const Extents& extents_of_input(const Network& network) const {
    return network.values[static_cast<size_t>(network.inputs[0])].extents;
  }
  int64_t elements_of_input(const Network& network) const {
    return elements(extents_of_input(network));
  }

  // Of the tables that such inputs pick rows of; 0: there is none.
  int64_t fewest_rows_of(Meaning meaning,
                         const NetworkInputs& inputs,
                         const Network& network) const {
    int64_t fewest = 0;
    for (size_t place = 0; place < network.inputs.size(); ++place) {
      const int64_t rows = fewest_rows(network, network.inputs[place]);
      if (inputs.meanings()[place] == meaning && rows > 0)
        fewest = fewest == 0 ? rows : std::min(fewest, rows);
    }
    return fewest;
  }
  // What tokens are below; 0: as the data say.
  int64_t vocabulary_of(const NetworkInputs& inputs, const Network& network) const {
    return predicts_tokens() ? outputs_of(network)
                             : fewest_rows_of(Meaning::kTokens, inputs, network);
  }
  // A network that is not told of segments takes pairs of texts all the same.
  int64_t segments_of(const NetworkInputs& inputs, const Network& network) const {
    constexpr int64_t kOfPairs = 2;
    const int64_t rows = fewest_rows_of(Meaning::kSegments, inputs, network);
    return rows > 0 ? rows : kOfPairs;
  }

  // Of one sample, where nothing but the file is known.
  Network usual_network(const NetworkInputs& inputs, const OpenedFile& opened) const {
    if (inputs.kind() != ModelInput::kImages)
      return inputs.bind(1, inputs.context(), {}, is_stream(Purpose::kInference));
    for (const int64_t side : kUsualSides) {
      try {
        return inputs.bind(1, 0, with_open_ones(opened, {3, side, side}), false);
      } catch (const ConfigError&) {
        if (side == std::end(kUsualSides)[-1]) throw;
      }
    }
    LOCKSTEP_CHECK(false);
    return {};
  }
  Extents sample_of(const NetworkInputs& inputs,
                    const OpenedFile& opened,
                    const ModelIo& io) const {
    if (inputs.kind() != ModelInput::kImages) return {};
    const Extents images = {io.channels, io.height, io.width};
    const Extents taken = with_open_ones(opened, images);
    if (taken != images)
      throw ConfigError(
          "model.onnx.file: {} takes images of {} (channels, height, width); the data has {}",
          config_.file,
          to_string(taken),
          to_string(images));
    return images;
  }
  // What the file or the config say of a sample's axes, and where they do not, `open`.
  Extents with_open_ones(const OpenedFile& opened, Extents open) const {
    const FileValue& input = opened.file.values[static_cast<size_t>(opened.file.inputs.front())];
    for (size_t axis = 1; axis < input.extents.size(); ++axis) {
      const OpenExtent& extent = input.extents[axis];
      if (extent.extent >= 0) open[axis - 1] = extent.extent;
      for (const OnnxAxis& given : config_.axes) {
        const std::string number = fmt::format("{}.{}", input.name, axis);
        if (extent.extent < 0 && (given.name == number || given.name == extent.name))
          open[axis - 1] = given.extent;
      }
    }
    return open;
  }

  // What data for this network would say.
  ModelIo io_of(const NetworkInputs& inputs, const Network& network) const {
    ModelIo io;
    if (inputs.kind() == ModelInput::kImages) {
      const Extents& extents = extents_of_input(network);
      io.channels = extents[1];
      io.height = extents[2];
      io.width = extents[3];
      io.mean.assign(static_cast<size_t>(io.channels), 0);
      io.std.assign(static_cast<size_t>(io.channels), 1);
    } else if (inputs.kind() == ModelInput::kFeatures) {
      io.features = elements_of_input(network);
    } else if (!predicts_tokens()) {
      io.vocabulary = vocabulary_of(inputs, network);
    }
    (has_labels() ? io.classes : io.target_columns) = outputs_of(network);
    return io;
  }

  Appended append(const GraphOptions& options,
                  const NetworkInputs& inputs,
                  const Network& network,
                  const ModelIo& io) const {
    GraphBuilder builder(options);
    Lowering lowering(network, builder);
    const DataInputs data = append_data_inputs(builder,
                                               inputs,
                                               network,
                                               io,
                                               config_.task == Task::kNextToken,
                                               vocabulary_of(inputs, network));
    for (size_t place = 0; place < network.inputs.size(); ++place) {
      const DataInputs::Input& input = data.inputs[place];
      if (input.tensor == kNoTensor) continue;
      lowering.set(network.inputs[place], input.tensor, input.channels_last);
      if (input.limit > 0) lowering.set_limit(network.inputs[place], input.limit);
    }
    try {
      if (inputs.kind() == ModelInput::kTokens)
        append_text_network(lowering, data.targets);
      else
        append_network(lowering);
    } catch (const ConfigError& error) {
      throw ConfigError("{}: {}", config_.file, error.what());
    }
    std::vector<LoweredParameter> parameters = lowering.parameters();
    return {std::move(builder).finish(), std::move(parameters)};
  }

  // With its loss, unless it is for inference. `targets`: of what predicts the next token.
  void append_text_network(Lowering& lowering, TensorId targets) const {
    GraphBuilder& builder = lowering.builder();
    const int output = output_number(lowering.network());
    std::optional<OutputLayer> layer;
    if (predicts_tokens()) layer = take_output_layer(lowering, output);
    lowering.run();
    const bool inference = builder.options().purpose == Purpose::kInference;
    if (layer) {
      const TensorId x = lowering.plain(layer->x);
      const TensorId weight = lowering.parameter(layer->weight, layer->storage);
      const TensorId bias = layer->bias < 0 ? kNoTensor : lowering.parameter(layer->bias);
      if (config_.task == Task::kMaskedTokens && !inference)
        targets = target_tokens(builder, builder.shape(x)[0], builder.shape(x)[1]);
      return end_language_model(builder, x, weight, targets, config_.label_smoothing, bias);
    }
    const TensorId outputs = lowering.plain(output);
    if (config_.task != Task::kNextToken)
      return end_text_classifier(
          builder,
          outputs,
          has_labels() ? Loss::kSoftmaxCrossEntropy : Loss::kMeanSquaredError,
          config_.label_smoothing);
    if (inference) return builder.keep(outputs);
    ops::softmax_cross_entropy(
        builder, outputs, targets, builder.training() ? config_.label_smoothing : 0);
  }

  void append_network(Lowering& lowering) const {
    GraphBuilder& builder = lowering.builder();
    lowering.run();
    const TensorId output = lowering.plain(output_number(lowering.network()));
    if (builder.options().purpose == Purpose::kInference) return builder.keep(output);
    const Shape shape = builder.shape(output);
    if (has_labels())
      return ops::softmax_cross_entropy(builder,
                                        output,
                                        builder.input("labels", {shape[0]}, DType::kI32),
                                        builder.training() ? config_.label_smoothing : 0);
    const TensorId targets = builder.input("targets", shape, DType::kF32);
    if (config_.loss == Loss::kBinaryCrossEntropy)
      return ops::binary_cross_entropy(builder, output, targets);
    ops::mean_squared_error(builder, output, targets);
  }

  OnnxConfig config_;
};

}  // namespace

void write_trained(const OnnxConfig& config,
                   const std::string& path,
                   const TrainedElements& elements) {
  write_file(config.file, path, OnnxModel(config).trained(elements));
}

}  // namespace onnx

template <>
std::unique_ptr<const Model> make_model(const OnnxConfig& config) {
  return std::make_unique<onnx::OnnxModel>(config);
}

}  // namespace lockstep
