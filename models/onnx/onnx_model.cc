// The family of networks that people bring: what the rest of the program wants to know of one, and its
// graph.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "models/model.h"
#include "models/onnx/data_inputs.h"
#include "models/onnx/goal.h"
#include "models/onnx/ids.h"
#include "models/onnx/lowering/lowering.h"
#include "models/onnx/network_inputs.h"
#include "models/onnx/opened_file.h"
#include "models/onnx/samples/mixing.h"
#include "models/onnx/trained_file.h"
#include "models/onnx/unsupported_ops.h"
#include "models/onnx/usual_network.h"
#include "models/onnx/write_file.h"
#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/graph/forward_fusion.h"
#include "runtime/graph/schema.h"

namespace lockstep {
namespace onnx {
namespace {

// Of each lane's, by which it is found out what masks say: a file does not tell one sample from another.
constexpr int64_t kSamplesOfMasks = 3;

// The largest batch in which mixing is looked for, and the bytes of it that may be known before the start.
constexpr int64_t kMostSamplesToMix = 32, kMostBytesToMix = int64_t{256} << 20;

class OnnxModel final : public Model {
 public:
  explicit OnnxModel(const OnnxConfig& config) : config_(config) {}

  void check() const override {
    const auto opened = open_file(config_);
    outputs_of(*opened, config_);
    check_goal(config_);
    const NetworkInputs inputs(*opened, config_);
    const auto [network, samples] = usual_network(inputs, *opened, config_);
    check_outputs(config_, inputs, network, samples);
    check_extents_of_outputs(inputs, *opened, network, samples);
    check_classes(inputs, network);
    check_vocabulary(inputs, network);
    check_positions(inputs, network);
    check_shared(*opened, config_);
    // Whether there are ops for all of it.
    append(GraphOptions(Purpose::kInference), inputs, network, io_of(inputs, network));
  }

  std::vector<std::string> problems() const override {
    std::vector<std::string> found;
    const auto tell = [&](const std::string& problem) {
      if (std::ranges::count(found, problem) == 0) found.push_back(problem);
    };
    const auto attempt = [&](const auto& work) {
      try {
        work();
      } catch (const ConfigError& error) {
        tell(error.what());
      }
    };
    attempt([&] {
      const auto opened = open_file(config_);
      attempt([&] { check_goal(config_); });
      attempt([&] { check_shared(*opened, config_); });
      attempt([&] {
        std::ranges::for_each(unsupported_ops(opened->file, outputs_of(*opened, config_)), tell);
      });
      attempt([&] {
        const NetworkInputs inputs(*opened, config_);
        std::ranges::for_each(node_problems(inputs, *opened, config_), tell);
      });
    });
    if (found.empty()) attempt([&] { check(); });
    return found;
  }

  ModelTraits traits() const override {
    if (config_.file.empty()) return {.loss = config_.loss};
    const auto opened = open_file(config_);
    const NetworkInputs inputs(*opened, config_);
    const Network network = usual_network(inputs, *opened, config_).network;
    ModelTraits traits{.file = config_.file,
                       .input = inputs.kind(),
                       .loss = config_.loss,
                       .outputs = output_count(network),
                       .outputs_field = "file"};
    if (const auto& diffusion = config_.diffusion) {
      traits.loss = Loss::kMeanSquaredError;
      traits.outputs = class_count(inputs, network);
      traits.diffusion = DiffusionTraits{.fields = "diffusion.",
                                         .schedule = diffusion->schedule,
                                         .target = diffusion->target,
                                         .with_classes = inputs.has(Meaning::kClasses),
                                         .without_classes = diffusion->label_dropout > 0};
    }
    if (inputs.kind() != ModelInput::kTokens) return traits;
    traits.context = inputs.context();
    traits.text_task = text_task_of(config_);
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
    const Network network = inputs.bind(usual_network(inputs, *opened, config_).samples,
                                        inputs.context(),
                                        sample_of(inputs, *opened, io),
                                        is_stream(config_, Purpose::kInference));
    const bool classes = has_labels(config_) || config_.diffusion;
    const int64_t outputs =
                      config_.diffusion ? class_count(inputs, network) : output_count(network),
                  wanted = classes ? io.classes : io.target_columns;
    const bool good = classes ? outputs >= wanted : wanted == 0 || outputs == wanted;
    if (!good && (!config_.diffusion || inputs.has(Meaning::kClasses)))
      throw ConfigError("model.onnx.file: {} has {} {}; the data has {} {}",
                        config_.file,
                        outputs,
                        config_.diffusion ? "classes" : "outputs",
                        wanted,
                        classes ? "classes" : "target columns");
    if (inputs.kind() == ModelInput::kFeatures && feature_count(network) != io.features)
      throw ConfigError("model.onnx.file: {} takes {} features; the data has {}",
                        config_.file,
                        feature_count(network),
                        io.features);
    return config_;
  }

  ModelIo io_of_weights(const ExtentsOf& /*extents_of*/) const override {
    const auto opened = open_file(config_);
    const NetworkInputs inputs(*opened, config_);
    return io_of(inputs, usual_network(inputs, *opened, config_).network);
  }

  // An older revision went by the rule of files that declare nothing.
  std::optional<ModelConfig> with_recorded_parameters(
      const std::set<std::string>& names) const override {
    if (config_.parameters != OnnxConfig::Parameters::kDeclared ||
        !open_file(config_)->file.declares || parameter_names() == names)
      return std::nullopt;
    OnnxConfig guessed = config_;
    guessed.parameters = OnnxConfig::Parameters::kGuessed;
    try {
      if (OnnxModel(guessed).parameter_names() == names) return guessed;
    } catch (const ConfigError&) {  // it cannot be trained so
    }
    return std::nullopt;
  }

  // The file's initializers with the elements of trained parameters.
  std::map<std::string, Array> trained(const TrainedElements& elements_of_parameter) const {
    const auto opened = open_file(config_);
    const NetworkInputs inputs(*opened, config_);
    const Network network = usual_network(inputs, *opened, config_).network;
    std::map<std::string, Array> arrays;
    const Appended made =
        append(GraphOptions(Purpose::kTraining), inputs, network, io_of(inputs, network));
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
                                        is_stream(config_, options));
    Graph graph = append(options, inputs, network, io).graph;
    const bool learns = std::ranges::any_of(
        graph.parameters, [&](TensorId id) { return graph[id].running_momentum == 0; });
    if (options.purpose == Purpose::kTraining && !learns)
      throw ConfigError(
          "model.onnx.file: no initializer of {} learns; allowed: a file with parameters, or "
          "model.onnx.trainable and constant that leave one or more",
          config_.file);
    return graph;
  }

  // In the global batch, or one of a usual size: how many samples mix may depend on it. The lane's is for a file that
  // takes no other.
  std::string mixing_node(const ModelIo& io,
                          int64_t global_batch,
                          int64_t lane_batch) const override {
    const auto opened = open_file(config_);
    const NetworkInputs inputs(*opened, config_);
    const int64_t batch = std::clamp<int64_t>(global_batch, 2, kMostSamplesToMix);
    std::vector<Network> networks;
    std::vector<int64_t> batches;
    for (const int64_t samples : {batch, batch > 3 ? batch / 2 : 2 * batch, lane_batch}) {
      if (networks.size() == 2 || std::ranges::count(batches, samples) > 0) continue;
      try {
        networks.push_back(inputs.bind(samples,
                                       inputs.context(),
                                       sample_of(inputs, *opened, io),
                                       is_stream(config_, Purpose::kInference),
                                       kMostBytesToMix));
        batches.push_back(samples);
      } catch (const ConfigError&) {
      }
    }
    if (networks.empty()) return "";
    std::vector<onnx::BoundNetwork> bound;
    for (size_t i = 0; i < networks.size(); ++i) bound.push_back({networks[i], batches[i]});
    return onnx::mixing_node(
        bound[0], bound.size() > 1 ? &bound[1] : nullptr, output_numbers(networks[0]));
  }

  int64_t fewest_samples() const override {
    const auto opened = open_file(config_);
    return usual_network(NetworkInputs(*opened, config_), *opened, config_).samples;
  }

  // Products that no layer of its own computes count, too.
  double flops_per_sample(const ModelIo& io) const override {
    const int64_t samples = fewest_samples();
    const Graph graph = build(io, samples, 0, Purpose::kInference);
    int64_t flops = 0;
    for (const Op& op : graph.ops) {
      if (op.kind == OpKind::kConv2d || op.kind == OpKind::kLinear ||
          op.kind == OpKind::kBatchedMatmul || op.kind == OpKind::kAttention)
        flops += schema_of(op.kind).flops(graph, op);
    }
    return 3 * static_cast<double>(flops) / static_cast<double>(samples);
  }

 private:
  using Task = OnnxConfig::Task;

  struct Appended {
    Graph graph;
    std::vector<LoweredParameter> parameters;
  };

  // Running statistics are among them.
  std::set<std::string> parameter_names() const {
    const auto opened = open_file(config_);
    const NetworkInputs inputs(*opened, config_);
    const Network network = usual_network(inputs, *opened, config_).network;
    const Graph graph =
        append(GraphOptions(Purpose::kTraining), inputs, network, io_of(inputs, network)).graph;
    std::set<std::string> names;
    for (const TensorId id : graph.parameters) names.insert(graph[id].name);
    return names;
  }

  void check_vocabulary(const NetworkInputs& inputs, const Network& network) const {
    if (inputs.kind() != ModelInput::kTokens || !predicts_tokens(config_)) return;
    const int64_t rows = fewest_rows_of(Meaning::kTokens, inputs, network);
    if (rows > 0 && rows < output_count(network))
      throw ConfigError("model.onnx.file: {} has {} outputs, but takes {} tokens alone",
                        config_.file,
                        output_count(network),
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

  // Similarities between samples would be taken for classes: there are as many as samples.
  void check_extents_of_outputs(const NetworkInputs& inputs,
                                const OpenedFile& opened,
                                const Network& network,
                                int64_t samples) const {
    const std::vector<int> outputs = output_numbers(network);
    Network twice;
    try {
      const Extents images =
          inputs.kind() == ModelInput::kImages
              ? with_open_ones(inputs, opened, config_, images_of(inputs, network))
              : Extents();
      twice = inputs.bind(
          2 * samples, inputs.context(), images, is_stream(config_, Purpose::kInference));
    } catch (const ConfigError&) {
      return;  // it takes so many samples alone
    }
    for (const int number : outputs) {
      const Value& one = network.values[static_cast<size_t>(number)];
      const Extents& two = twice.values[static_cast<size_t>(number)].extents;
      for (size_t axis = 1; axis < std::min(one.extents.size(), two.size()); ++axis)
        if (one.extents[axis] != two[axis])
          throw ConfigError(
              "model.onnx.output: \"{}\" of {} has as many elements along axis {} as the batch has "
              "samples, as similarities between samples have; a loss that compares samples with each "
              "other is not supported; allowed: (N, ...) with the same extents for any batch N",
              one.name,
              config_.file,
              axis);
    }
  }

  // What a network is told of classes must be a table with a row for each of them.
  void check_classes(const NetworkInputs& inputs, const Network& network) const {
    if (!config_.diffusion || !inputs.has(Meaning::kClasses)) return;
    const int64_t rows = fewest_rows_of(Meaning::kClasses, inputs, network);
    const int64_t classes = config_.diffusion->classes;
    if (classes == 0 && rows == 0)
      refuse_value("model.onnx.diffusion.classes",
                   classes,
                   fmt::format("the number of classes, as {} picks no rows of a table by them",
                               config_.file));
    if (rows > 0 && rows < std::max<int64_t>(classes, 1) + inputs.rows_for_none())
      refuse_value(
          classes > 0 ? "model.onnx.diffusion.classes" : "model.onnx.diffusion.label_dropout",
          classes > 0 ? static_cast<double>(classes)
                      : static_cast<double>(config_.diffusion->label_dropout),
          fmt::format("what the table of {} has rows for, of which there are {}, with "
                      "label_dropout one more than classes",
                      config_.file,
                      rows));
  }

  std::vector<int> output_numbers(const Network& network) const {
    std::vector<int> numbers;
    for (const size_t place : outputs_of(*open_file(config_), config_))
      numbers.push_back(network.outputs[place]);
    return numbers;
  }
  int64_t output_count(const Network& network) const {
    const int number = output_numbers(network).front();
    return onnx::output_count(config_, network.values[static_cast<size_t>(number)]);
  }
  // (C, H, W).
  Extents images_of(const NetworkInputs& inputs, const Network& network) const {
    const Extents& extents = image_extents(inputs, network);
    return {extents.begin() + 1, extents.end()};
  }
  const Extents& image_extents(const NetworkInputs& inputs, const Network& network) const {
    return network.values[static_cast<size_t>(network.inputs[inputs.images_place()])].extents;
  }
  // Of a sample: all inputs together.
  int64_t feature_count(const Network& network) const {
    int64_t count = 0;
    for (const int number : network.inputs)
      count += elements(network.values[static_cast<size_t>(number)].extents) /
               network.values[static_cast<size_t>(number)].extents[0];
    return count;
  }
  // Of networks that take noise off images; 0: they are told of none.
  int64_t class_count(const NetworkInputs& inputs, const Network& network) const {
    if (!inputs.has(Meaning::kClasses)) return 0;
    if (config_.diffusion->classes > 0) return config_.diffusion->classes;
    return fewest_rows_of(Meaning::kClasses, inputs, network) - inputs.rows_for_none();
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
    return predicts_tokens(config_) ? output_count(network)
                                    : fewest_rows_of(Meaning::kTokens, inputs, network);
  }
  // A network that is not told of segments takes pairs of texts all the same.
  int64_t segments_of(const NetworkInputs& inputs, const Network& network) const {
    constexpr int64_t kOfPairs = 2;
    const int64_t rows = fewest_rows_of(Meaning::kSegments, inputs, network);
    return rows > 0 ? rows : kOfPairs;
  }

  Extents sample_of(const NetworkInputs& inputs,
                    const OpenedFile& opened,
                    const ModelIo& io) const {
    if (inputs.kind() != ModelInput::kImages) return {};
    const Extents images = {io.channels, io.height, io.width};
    const Extents taken = with_open_ones(inputs, opened, config_, images);
    if (taken != images)
      throw ConfigError(
          "model.onnx.file: {} takes images of {} (channels, height, width); the data has {}",
          config_.file,
          to_string(taken),
          to_string(images));
    return images;
  }
  // What data for this network would say.
  ModelIo io_of(const NetworkInputs& inputs, const Network& network) const {
    ModelIo io;
    if (inputs.kind() == ModelInput::kImages) {
      const Extents& extents = image_extents(inputs, network);
      io.channels = extents[1];
      io.height = extents[2];
      io.width = extents[3];
      io.mean.assign(static_cast<size_t>(io.channels), 0);
      io.std.assign(static_cast<size_t>(io.channels), 1);
    } else if (inputs.kind() == ModelInput::kFeatures) {
      io.features = feature_count(network);
    } else if (!predicts_tokens(config_)) {
      io.vocabulary = vocabulary_of(inputs, network);
    }
    if (config_.diffusion)
      io.classes = std::max<int64_t>(1, class_count(inputs, network));
    else
      (has_labels(config_) ? io.classes : io.target_columns) = output_count(network);
    return io;
  }

  Appended append(const GraphOptions& options,
                  const NetworkInputs& inputs,
                  const Network& network,
                  const ModelIo& io) const {
    GraphBuilder builder(options);
    Lowering lowering(network, builder);
    lowering.synchronise_norms(config_.batch_norm == OnnxConfig::BatchNorm::kSynchronised);
    const DataInputs data = append_data_inputs(
        builder,
        config_,
        inputs,
        network,
        io,
        config_.diffusion ? class_count(inputs, network) : vocabulary_of(inputs, network));
    std::vector<int> masks;
    for (size_t place = 0; place < network.inputs.size(); ++place) {
      const DataInputs::Input& input = data.inputs[place];
      if (input.tensor == kNoTensor) continue;
      lowering.set(network.inputs[place], input.tensor, input.channels_last);
      if (input.limit > 0) lowering.set_limit(network.inputs[place], input.limit);
      if (inputs.meanings()[place] == Meaning::kMask) masks.push_back(network.inputs[place]);
    }
    Network few;
    if (!masks.empty()) {
      const Extents& tokens = network.values[static_cast<size_t>(masks[0])].extents;
      few = inputs.bind(
          std::min(tokens[0], kSamplesOfMasks), tokens[1], {}, is_stream(config_, options));
      lowering.set_token_masks(std::move(masks), data.documents, few);
    }
    try {
      append_to_goal(lowering, config_, data, output_numbers(network));
    } catch (const ConfigError& error) {
      throw ConfigError("{}: {}", config_.file, error.what());
    }
    std::vector<LoweredParameter> parameters = lowering.parameters();
    Graph graph = std::move(builder).finish();
    fuse_forward(graph);
    return {std::move(graph), std::move(parameters)};
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
