// The family of networks that people bring: what the rest of the program wants to know of one, and its
// graph.
#include <fmt/format.h>

#include <iterator>

#include "models/model.h"
#include "models/onnx/lowering/lowering.h"
#include "models/onnx/opened_file.h"
#include "models/onnx/trained_file.h"
#include "models/onnx/write_file.h"
#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/cast.h"
#include "runtime/graph/ops/image_normalize.h"
#include "runtime/graph/ops/pointwise_losses.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/softmax_cross_entropy.h"

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
                   "0, or above it only with model.onnx.loss SOFTMAX_CROSS_ENTROPY");
    check_input(*opened);
    const Network network = usual_network(*opened);
    check_output(*opened, network);
    check_shared(*opened, config_);
    // Whether there are ops for all of it.
    GraphBuilder builder{GraphOptions(Purpose::kInference)};
    append_network(
        builder, network, data_input(builder, *opened, network, io_of(*opened, network)));
  }

  ModelTraits traits() const override {
    if (config_.file.empty()) return {.loss = config_.loss};
    const auto opened = open_file(config_);
    check_input(*opened);
    const Network network = usual_network(*opened);
    return {.input = takes_images(*opened) ? ModelInput::kImages : ModelInput::kFeatures,
            .loss = config_.loss,
            .outputs = outputs_of(*opened, network),
            .outputs_field = "file"};
  }

  ModelConfig resolve(const ModelIo& io) const override {
    const auto opened = open_file(config_);
    const Extents sample = sample_of(*opened, io);
    const Network network = network_of(*opened, config_, 1, sample);
    const int64_t outputs = outputs_of(*opened, network),
                  wanted = has_labels() ? io.classes : io.target_columns;
    if (has_labels() ? outputs < wanted : wanted > 0 && outputs != wanted)
      throw ConfigError("model.onnx.file: {} has {} outputs; the data has {} {}",
                        config_.file,
                        outputs,
                        wanted,
                        has_labels() ? "classes" : "target columns");
    if (!takes_images(*opened) && elements_of_input(network) != io.features)
      throw ConfigError("model.onnx.file: {} takes {} features; the data has {}",
                        config_.file,
                        elements_of_input(network),
                        io.features);
    return config_;
  }

  ModelIo io_of_weights(const ExtentsOf& /*extents_of*/) const override {
    const auto opened = open_file(config_);
    return io_of(*opened, usual_network(*opened));
  }

  // The file's initializers with the elements of trained parameters.
  std::map<std::string, Array> trained(const TrainedElements& elements_of_parameter) const {
    const auto opened = open_file(config_);
    const Network network = usual_network(*opened);
    GraphBuilder builder{GraphOptions(Purpose::kInference)};
    Lowering lowering(network, builder);
    run(lowering, data_input(builder, *opened, network, io_of(*opened, network)));
    std::map<std::string, Array> arrays;
    for (const LoweredParameter& parameter : lowering.parameters()) {
      const Value& value = lowering.value(parameter.value);
      arrays[value.name] =
          array_of(value.array.type,
                   value.extents,
                   elements_in_file(value, parameter.storage, elements_of_parameter(value.name)));
    }
    return arrays;
  }

  Graph build(const ModelIo& io,
              int64_t lane_batch,
              int64_t /*tokens*/,
              const GraphOptions& options) const override {
    const auto opened = open_file(config_);
    const Network network = network_of(*opened, config_, lane_batch, sample_of(*opened, io));
    GraphBuilder builder(options);
    const Input input = data_input(builder, *opened, network, io);
    TensorId target = kNoTensor;
    const int64_t outputs = outputs_of(*opened, network);
    if (options.purpose != Purpose::kInference)
      target = has_labels() ? builder.input("labels", {lane_batch}, DType::kI32)
                            : builder.input("targets", {lane_batch, outputs}, DType::kF32);
    append_loss(builder, append_network(builder, network, input), target);
    return std::move(builder).finish();
  }

 private:
  struct Input {
    TensorId tensor;
    bool channels_last;
  };

  bool has_labels() const { return config_.loss == Loss::kSoftmaxCrossEntropy; }

  const FileValue& input_of(const OpenedFile& opened) const {
    return opened.file.values[static_cast<size_t>(opened.file.inputs.front())];
  }
  bool takes_images(const OpenedFile& opened) const { return input_of(opened).extents.size() == 4; }

  void check_input(const OpenedFile& opened) const {
    if (opened.file.inputs.size() != 1)
      throw ConfigError("model.onnx.file: {} has {} inputs; allowed: one, of features or images",
                        config_.file,
                        opened.file.inputs.size());
    const FileValue& input = input_of(opened);
    if (!input.typed || input.type != ElementType::kFloat || input.extents.size() < 2)
      throw ConfigError(
          "model.onnx.file: the input \"{}\" of {} is {} with {} axes; allowed: float, of features "
          "(N, F) or images (N, C, H, W)",
          input.name,
          config_.file,
          input.typed ? name_of(input.type) : "of no type",
          input.extents.size());
  }

  void check_output(const OpenedFile& opened, const Network& network) const {
    const Value& output = output_value(opened, network);
    if (output.extents.size() != 2 || output.extents[0] != 1)
      throw ConfigError(
          "model.onnx.output: \"{}\" of {} has extents {} for one sample; allowed: (N, O)",
          output.name,
          config_.file,
          to_string(output.extents));
  }

  const Value& output_value(const OpenedFile& opened, const Network& network) const {
    return network.values[static_cast<size_t>(network.outputs[output_of(opened, config_)])];
  }
  int64_t outputs_of(const OpenedFile& opened, const Network& network) const {
    const Extents& extents = output_value(opened, network).extents;
    return extents.empty() ? 1 : extents.back();
  }
  int64_t elements_of_input(const Network& network) const {
    return elements(network.values[static_cast<size_t>(network.inputs[0])].extents);
  }

  // Of one sample, where nothing but the file is known.
  Network usual_network(const OpenedFile& opened) const {
    if (!takes_images(opened)) return network_of(opened, config_, 1, {});
    for (const int64_t side : kUsualSides) {
      try {
        return network_of(opened, config_, 1, with_open_ones(opened, {3, side, side}));
      } catch (const ConfigError&) {
        if (side == std::end(kUsualSides)[-1]) throw;
      }
    }
    LOCKSTEP_CHECK(false);
    return {};
  }
  Extents sample_of(const OpenedFile& opened, const ModelIo& io) const {
    if (!takes_images(opened)) return {};
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
    const FileValue& input = input_of(opened);
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

  // The input that the loader fills, as the network takes it.
  Input data_input(GraphBuilder& builder,
                   const OpenedFile& opened,
                   const Network& network,
                   const ModelIo& io) const {
    const Value& value = network.values[static_cast<size_t>(network.inputs[0])];
    const int64_t batch = value.extents[0];
    if (takes_images(opened)) {
      const TensorId pixels =
          builder.input("images", {batch, io.height, io.width, io.channels}, DType::kU8);
      return {ops::image_normalize(builder, "images.normalized", pixels, {io.mean, io.std}), true};
    }
    const TensorId features =
        builder.input("features", {batch, elements(value.extents) / batch}, DType::kF32);
    const TensorId x = ops::cast(builder, "features.rounded", features);
    const Shape shape = shape_of(value);
    return {builder.shape(x) == shape ? x : ops::reshape(builder, "features.extents", x, shape),
            false};
  }

  // What data for this network would say.
  ModelIo io_of(const OpenedFile& opened, const Network& network) const {
    ModelIo io;
    if (takes_images(opened)) {
      const Extents& extents = network.values[static_cast<size_t>(network.inputs[0])].extents;
      io.channels = extents[1];
      io.height = extents[2];
      io.width = extents[3];
      io.mean.assign(static_cast<size_t>(io.channels), 0);
      io.std.assign(static_cast<size_t>(io.channels), 1);
    } else {
      io.features = elements_of_input(network);
    }
    (has_labels() ? io.classes : io.target_columns) = outputs_of(opened, network);
    return io;
  }

  TensorId append_network(GraphBuilder& builder, const Network& network, const Input& input) const {
    Lowering lowering(network, builder);
    run(lowering, input);
    return lowering.plain(network.outputs[output_of(*open_file(config_), config_)]);
  }

  void run(Lowering& lowering, const Input& input) const {
    lowering.set(lowering.network().inputs[0], input.tensor, input.channels_last);
    try {
      lowering.run();
    } catch (const ConfigError& error) {
      throw ConfigError("{}: {}", config_.file, error.what());
    }
  }

  void append_loss(GraphBuilder& builder, TensorId output, TensorId target) const {
    if (target == kNoTensor) return builder.keep(output);
    if (has_labels())
      return ops::softmax_cross_entropy(
          builder, output, target, builder.training() ? config_.label_smoothing : 0);
    if (config_.loss == Loss::kBinaryCrossEntropy)
      return ops::binary_cross_entropy(builder, output, target);
    ops::mean_squared_error(builder, output, target);
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
