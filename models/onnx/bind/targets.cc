#include "models/onnx/bind/targets.h"

#include <algorithm>
#include <utility>

#include "models/onnx/bind/objective.h"
#include "models/onnx/nodes/ids.h"
#include "models/onnx/nodes/losses.h"
#include "models/onnx/nodes/lowering/storage.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/graph/ops/cast.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/target_part.h"

namespace lockstep::onnx {
namespace {

using config::TargetPart;

// The target of an output with this loss.
TargetPart part_of_loss(const OnnxConfig& config,
                        const NetworkInputs& inputs,
                        const std::string& name,
                        const Value& output) {
  const int64_t count = output_count(config, inputs.kind(), output);
  const Extents positions = positions_of(config, inputs.kind(), output.extents);
  if (!positions.empty())  // of images, which the data may have in other sizes
    return {.name = name,
            .extents = positions,
            .any_extents = inputs.kind() == config::ModelInput::kImages,
            .classes = count,
            .ignored = -1};
  if (has_labels(config)) return {.name = name, .classes = count};
  const bool shares = config.loss == Loss::kBinaryCrossEntropy;
  return {.name = name,
          .type = shares ? TargetPart::Type::kShares : TargetPart::Type::kValues,
          .extents = {count}};
}

// The labels that a node takes from the input: their number and the one that it ignores.
void limit_labels(const Network& network, int input, TargetPart& part) {
  const std::vector<int> sources = sources_of_elements(network);
  for (const Node& node : network.nodes) {
    if (!is_loss_node(node) || sources[static_cast<size_t>(node.input(1))] != input) continue;
    const int64_t classes = network.values[static_cast<size_t>(node.input(0))].extents[1];
    part.classes = part.classes == 0 ? classes : std::min(part.classes, classes);
    if (node.has("ignore_index")) part.ignored = node.integer("ignore_index", 0);
  }
}

const OnnxInput* given_input(const OnnxConfig& config, const std::string& name) {
  const auto found = std::ranges::find(config.inputs, name, &OnnxInput::name);
  return found == config.inputs.end() ? nullptr : &*found;
}

// The target of an input. Axes that the file leaves open, and the config too, have the data's
// extents.
TargetPart part_of_input_value(const OnnxConfig& config,
                               const FileValue& declared,
                               const Network& network,
                               int number) {
  const Value& value = network.values[static_cast<size_t>(number)];
  const OnnxInput* const given = given_input(config, value.name);
  TargetPart part{
      .name = given != nullptr && !given->target.empty() ? given->target : value.name,
      .type = is_floating(value.type) ? TargetPart::Type::kValues : TargetPart::Type::kLabels,
      .extents = {value.extents.begin() + 1, value.extents.end()}};
  for (size_t axis = 1; axis < declared.extents.size(); ++axis) {
    const OpenExtent& extent = declared.extents[axis];
    const std::string path = fmt::format("{}.{}", value.name, axis);
    const bool set = std::ranges::any_of(config.axes, [&](const OnnxAxis& axis_of) {
      return axis_of.name == path || axis_of.name == extent.name;
    });
    part.any_extents |= extent.extent < 0 && !set;
  }
  if (part.type == TargetPart::Type::kLabels) limit_labels(network, number, part);
  if (part.type == TargetPart::Type::kLabels && compares_vectors(config))
    part.classes = fewest_rows(network, number);
  return part;
}

size_t heads_with_targets(const OnnxConfig& config) {
  return static_cast<size_t>(std::ranges::count_if(
      config.losses, [](const OnnxLoss& loss) { return !loss.target.empty(); }));
}

}  // namespace

bool computes_loss(const OnnxConfig& config) { return config.loss == Loss::kOutput; }
bool compares_vectors(const OnnxConfig& config) { return config.loss == Loss::kContrastive; }

bool has_parts(const OnnxConfig& config, const NetworkInputs& inputs) {
  return inputs.kind() != config::ModelInput::kTokens &&
         (computes_loss(config) || compares_vectors(config) || heads_with_targets(config) > 0);
}

OnnxConfig scored(const OnnxConfig& config) {
  if (!computes_loss(config) || config.predictions.empty()) return config;
  OnnxConfig only = config;
  only.output = config.predictions.front().output;
  only.loss = config.predictions.front().kind;
  only.predictions.clear();
  return only;
}

OnnxConfig of_head(const OnnxConfig& config, size_t index) {
  if (index == 0) return config;
  const OnnxLoss& loss = config.losses[index - 1];
  OnnxConfig only = config;
  only.output = loss.output;
  if (!loss.target.empty()) only.loss = loss.loss;
  return only;
}

std::vector<TargetPart> asked_targets(const OpenedFile& opened,
                                      const OnnxConfig& config,
                                      const NetworkInputs& inputs,
                                      const Network& network) {
  if (!has_parts(config, inputs)) return {};
  std::vector<TargetPart> parts;
  const auto output_at = [&](size_t place) -> const Value& {
    const int number = network.outputs[outputs_of(opened, config)[place]];
    return network.values[static_cast<size_t>(number)];
  };
  if (!computes_loss(config) && !compares_vectors(config)) {
    parts.push_back(part_of_loss(config, inputs, "", output_at(0)));
    for (size_t i = 1; i <= config.losses.size(); ++i)
      if (const std::string& name = config.losses[i - 1].target; !name.empty()) {
        parts.push_back(part_of_loss(of_head(config, i), inputs, name, output_at(i)));
      }
    return parts;
  }
  if (!config.predictions.empty()) {
    parts.push_back(
        part_of_loss(scored(config), inputs, config.predictions.front().target, output_at(1)));
  }
  for (size_t index = 0; index < network.inputs.size(); ++index)
    if (inputs.meanings()[index] == Meaning::kTarget) {
      const auto file_value = static_cast<size_t>(opened.file.inputs[index]);
      parts.push_back(part_of_input_value(
          config, opened.file.values[file_value], network, network.inputs[index]));
    }
  // A network without targets, such as an autoencoder, takes what the data have.
  if (parts.empty()) parts.push_back({.any_extents = true});
  return parts;
}

TargetRecord::TargetRecord(graph::GraphBuilder& builder,
                           std::vector<TargetPart> asked,
                           const std::vector<TargetPart>& found,
                           int64_t samples)
    : builder_(&builder), asked_(std::move(asked)), found_(found.empty() ? asked_ : found) {
  record_ = builder.input(
      "targets", {samples, config::first_element(found_, found_.size())}, DType::kI32);
}

const TargetPart& TargetRecord::part(size_t index) const {
  return found_.size() == 1 ? found_.front() : found_[index];
}

TensorId TargetRecord::take(size_t index, const std::string& name, const Shape& shape) const {
  const TargetPart& found = part(index);
  if (found.elements() != shape.elements() / shape[0])
    throw ConfigError("the target {} has {} numbers for each sample; the network takes {}",
                      in_quotes(found.name),
                      found.elements(),
                      shape.elements() / shape[0]);
  const bool labels = found.type == TargetPart::Type::kLabels;
  const int64_t first = found_.size() == 1 ? 0 : config::first_element(found_, index);
  return ops::target_part(
      *builder_, name, record_, first, shape, labels ? DType::kI32 : DType::kF32);
}

TensorId TargetRecord::take_as(DType type,
                               size_t index,
                               const std::string& name,
                               const Shape& shape) const {
  const TensorId taken = take(index, name, shape);
  if ((*builder_)[taken].dtype != type)
    throw ConfigError("the target {} has {}; the network takes {}",
                      in_quotes(part(index).name),
                      type == DType::kI32 ? "values" : "class numbers",
                      type == DType::kI32 ? "class numbers" : "values");
  return taken;
}

TensorId as_input(graph::GraphBuilder& builder, const Value& input, TensorId numbers) {
  if (builder[numbers].dtype == DType::kF32)
    return ops::cast(builder, input.name + ".rounded", numbers);
  if (is_integer(input.type)) return numbers;
  graph::PointwiseProgram identity;
  identity.append(graph::PointwiseFunction::kIdentity, identity.input(0));
  return ops::pointwise(builder, input.name + ".numbers", {numbers}, identity);
}

Network without_other_nodes(const Network& network, std::vector<int> outputs) {
  Network only = network;
  only.outputs = std::move(outputs);
  std::vector<bool> needed(only.values.size(), false);
  for (const int output : only.outputs) needed[static_cast<size_t>(output)] = true;
  std::vector<Node> nodes;
  for (auto node = network.nodes.rbegin(); node != network.nodes.rend(); ++node) {
    const bool wanted = std::ranges::any_of(node->outputs, [&](int number) {
      return number >= 0 && needed[static_cast<size_t>(number)];
    });
    if (!wanted) continue;
    for (const int number : node->inputs)
      if (number >= 0) needed[static_cast<size_t>(number)] = true;
    nodes.push_back(*node);
  }
  std::ranges::reverse(nodes);
  only.nodes = std::move(nodes);
  return only;
}

size_t part_of_input(const OnnxConfig& config, const NetworkInputs& inputs, size_t input) {
  const auto first = inputs.meanings().begin();
  return (config.predictions.empty() ? 0 : 1) +
         static_cast<size_t>(
             std::count(first, first + static_cast<std::ptrdiff_t>(input), Meaning::kTarget));
}

size_t part_of_head(const OnnxConfig& config, size_t index) {
  if (index == 0 || config.losses[index - 1].target.empty()) return 0;
  size_t part = 1;
  for (size_t i = 1; i < index; ++i) part += config.losses[i - 1].target.empty() ? 0 : 1;
  return part;
}

}  // namespace lockstep::onnx
