#include "models/onnx/bind/data_inputs.h"

#include <algorithm>

#include "models/language_model.h"
#include "models/onnx/bind/network_sizes.h"
#include "models/onnx/bind/objective.h"
#include "models/onnx/nodes/ids.h"
#include "models/onnx/nodes/lowering/storage.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/cast.h"
#include "runtime/graph/ops/image_normalize.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

bool is_read(const Network& network, int number) {
  return std::ranges::count(network.outputs, number) > 0 ||
         std::ranges::any_of(network.nodes, [&](const Node& node) {
           return std::ranges::count(node.inputs, number) > 0;
         });
}

// Makes the inputs that have a number for each token, (B, T).
class TextInputs {
 public:
  TextInputs(graph::GraphBuilder& builder, int64_t batch, int64_t tokens, bool next_token)
      : builder_(builder),
        samples_(next_token ? models::token_inputs(builder, batch, tokens)
                            : models::text_inputs(builder, batch, tokens, 0)) {}

  TensorId targets() const { return samples_.targets; }
  TensorId documents() const { return samples_.documents; }

  TensorId tensor_of(Meaning meaning, const Value& input) {
    switch (meaning) {
      case Meaning::kTokens: return samples_.tokens;
      case Meaning::kSegments: return samples_.segments;
      case Meaning::kPositions: return samples_.positions;
      case Meaning::kMask: return mask(input);
      default: break;
    }
    LOCKSTEP_CHECK(false, "{} has no number for each token", input.name);
    return kNoTensor;
  }

 private:
  // 1 for tokens, 0 for padding, whose document is below 0.
  TensorId mask(const Value& input) {
    graph::PointwiseProgram program;
    const int zero = program.constant(0);
    program.append(graph::PointwiseFunction::kLessOrEqual, zero, program.input(0));
    return ops::pointwise(
        builder_, input.name, {samples_.documents}, program, !is_floating(input.type));
  }

  graph::GraphBuilder& builder_;
  models::TokenInputs samples_;
};

DataInputs::Input images_of(graph::GraphBuilder& builder,
                            const Value& input,
                            const models::ModelIo& io) {
  const TensorId pixels =
      builder.input("images", {input.extents[0], io.height, io.width, io.channels}, DType::kU8);
  return {ops::image_normalize(builder, "images.normalized", pixels, {io.mean, io.std}), true};
}

// Converts numbers to the type of the file's input: unchanged if it is floating-point, else
// integers.
TensorId as_typed(graph::GraphBuilder& builder, const Value& input, TensorId numbers) {
  if (is_floating(input.type)) return numbers;
  graph::PointwiseProgram identity;
  identity.append(graph::PointwiseFunction::kIdentity, identity.input(0));
  return ops::pointwise(builder, input.name + ".whole", {numbers}, identity, /*integers=*/true);
}

// The features of a sample are split among the inputs, in order.
DataInputs feature_data(graph::GraphBuilder& builder,
                        const NetworkInputs& inputs,
                        const Network& network,
                        int64_t all) {
  const auto value = [&](int number) -> const Value& {
    return network.values[static_cast<size_t>(number)];
  };
  const int64_t batch = value(network.inputs[0]).extents[0];
  int64_t first = 0;
  const TensorId features = builder.input("features", {batch, all}, DType::kF32);
  const TensorId x = ops::cast(builder, "features.rounded", features);
  DataInputs made;
  for (size_t index = 0; index < network.inputs.size(); ++index) {
    const Value& input = value(network.inputs[index]);
    if (inputs.meanings()[index] == Meaning::kTarget) {
      made.inputs.emplace_back();
      continue;
    }
    const int64_t count = elements(input.extents) / batch;
    // Integers are taken from the data, without the cast to the compute type.
    TensorId part = is_floating(input.type) ? x : features;
    if (count < all)
      part = ops::slice(builder, input.name + ".columns", part, {0, first}, {1, 1}, {batch, count});
    first += count;
    part = as_typed(builder, input, part);
    const Shape shape = shape_of(input);
    made.inputs.push_back({builder.shape(part) == shape
                               ? part
                               : ops::reshape(builder, input.name + ".extents", part, shape)});
  }
  return made;
}

DataInputs denoiser_data(graph::GraphBuilder& builder,
                         const OnnxDiffusion& diffusion,
                         const NetworkInputs& inputs,
                         const Network& network,
                         const models::ModelIo& io,
                         int64_t classes) {
  const auto value = [&](size_t index) -> const Value& {
    return network.values[static_cast<size_t>(network.inputs[index])];
  };
  if (builder.options().compute != DType::kF32)
    config::refuse_value(
        "execution.precision",
        builder.options().compute == DType::kBF16 ? "BF16" : "FP16",
        "FP32 with model.onnx.diffusion, because 16 bits cannot distinguish all times");
  const bool lose_classes = diffusion.label_dropout > 0 && inputs.has(Meaning::kClasses);
  DataInputs made;
  made.noised =
      models::denoiser_inputs(builder,
                              io,
                              value(0).extents[0],
                              {.schedule = diffusion.schedule,
                               .target = diffusion.target,
                               .label_dropout = lose_classes ? diffusion.label_dropout : 0,
                               .classes = classes});
  for (size_t index = 0; index < network.inputs.size(); ++index) {
    switch (inputs.meanings()[index]) {
      case Meaning::kImages: made.inputs.push_back({made.noised.images, true}); break;
      case Meaning::kTimes:
        made.inputs.push_back({as_typed(builder, value(index), made.noised.times)});
        break;
      default:
        made.inputs.push_back(
            {.tensor = made.noised.classes, .limit = classes + inputs.rows_for_none()});
    }
  }
  return made;
}

DataInputs image_data(graph::GraphBuilder& builder,
                      const NetworkInputs& inputs,
                      const Network& network,
                      const models::ModelIo& io) {
  DataInputs made;
  made.inputs.resize(network.inputs.size());
  const size_t images = inputs.images_place();
  made.inputs[images] =
      images_of(builder, network.values[static_cast<size_t>(network.inputs[images])], io);
  return made;
}

DataInputs text_data(graph::GraphBuilder& builder,
                     const OnnxConfig& config,
                     const NetworkInputs& inputs,
                     const Network& network,
                     int64_t ids) {
  const auto value = [&](size_t index) -> const Value& {
    return network.values[static_cast<size_t>(network.inputs[index])];
  };
  const auto of_tokens = std::ranges::find_if(inputs.meanings(), is_of_tokens);
  const int64_t tokens =
      value(static_cast<size_t>(of_tokens - inputs.meanings().begin())).extents[1];
  const bool next_token = config.task == OnnxConfig::Task::kNextToken;
  TextInputs text(builder, value(0).extents[0], tokens, next_token);
  DataInputs made;
  for (size_t index = 0; index < network.inputs.size(); ++index) {
    const Meaning meaning = inputs.meanings()[index];
    DataInputs::Input input;
    const bool known = value(index).kind == ValueKind::kConstant;
    if (!known && meaning != Meaning::kTarget && is_read(network, network.inputs[index]))
      input.tensor = text.tensor_of(meaning, value(index));
    if (meaning == Meaning::kMask) input.limit = 2;
    if (meaning == Meaning::kTokens) input.limit = ids;
    if (meaning == Meaning::kPositions) input.limit = tokens;
    if (meaning == Meaning::kSegments) input.limit = fewest_rows(network, network.inputs[index]);
    made.inputs.push_back(input);
  }
  made.documents = text.documents();
  made.targets = text.targets();
  return made;
}

// The only target of a text, as its task says.
TensorId target_of_text(graph::GraphBuilder& builder,
                        const OnnxConfig& config,
                        const Value& input,
                        TensorId next_tokens) {
  const Shape shape = shape_of(input);
  const bool of_samples = config.task == OnnxConfig::Task::kSequenceClasses ||
                          config.task == OnnxConfig::Task::kSequenceValues;
  const bool values = config.task == OnnxConfig::Task::kSequenceValues;
  if (shape.elements() != shape[0] * (of_samples || shape.rank() < 2 ? 1 : shape[1]) ||
      of_samples == (shape.rank() == 2 && shape[1] > 1) || values == is_integer(input.type))
    throw ConfigError(
        "model.onnx.inputs: the target {} is {} with extents {}; allowed for model.onnx.task {}: "
        "{}",
        in_quotes(input.name),
        name_of(input.type),
        to_string(shape),
        lockstep::name_of(config.task),
        values       ? "float (N)"
        : of_samples ? "int64 or int32 (N)"
                     : "int64 or int32 (N, T)");
  if (next_tokens != kNoTensor) return next_tokens;
  if (of_samples) return builder.input("targets", shape, values ? DType::kF32 : DType::kI32);
  return models::target_tokens(builder, shape[0], shape[1]);
}

}  // namespace

DataInputs append_data_inputs(graph::GraphBuilder& builder,
                              const OpenedFile& opened,
                              const OnnxConfig& config,
                              const NetworkInputs& inputs,
                              const Network& network,
                              const models::ModelIo& io,
                              int64_t ids,
                              bool targets) {
  if (config.diffusion) return denoiser_data(builder, *config.diffusion, inputs, network, io, ids);
  DataInputs made;
  switch (inputs.kind()) {
    case config::ModelInput::kImages: made = image_data(builder, inputs, network, io); break;
    case config::ModelInput::kFeatures:
      made = feature_data(
          builder, inputs, network, NetworkSizes(opened, config, inputs, network).features());
      break;
    case config::ModelInput::kTokens:
      made = text_data(builder, config, inputs, network, ids);
      break;
  }
  made.kind = inputs.kind();
  if (!targets) return made;
  const auto value = [&](size_t index) -> const Value& {
    return network.values[static_cast<size_t>(network.inputs[index])];
  };
  if (is_transcript(config))
    made.targets = builder.input("targets", {value(0).extents[0], io.target_columns}, DType::kI32);
  if (has_parts(config, inputs))
    made.record.emplace(
        builder, asked_targets(opened, config, inputs, network), io.targets, value(0).extents[0]);
  for (size_t index = 0; index < network.inputs.size(); ++index) {
    if (inputs.meanings()[index] != Meaning::kTarget) continue;
    const Value& input = value(index);
    if (!made.record) made.targets = target_of_text(builder, config, input, made.targets);
    const TensorId target =
        made.record
            ? made.record->take(part_of_input(config, inputs, index), input.name, shape_of(input))
            : made.targets;
    made.inputs[index] = {.tensor = as_input(builder, input, target)};
  }
  return made;
}

}  // namespace lockstep::onnx
